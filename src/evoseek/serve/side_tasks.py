"""What chat clients ask of a model beside questions: a title, tags or suggestions for a conversation.

Such a request is not about the documents, so it is answered from its own words, without a rollout. In any client's
wording, in English, it has both of these:

- a conversation: quoted in its only message (lines that begin with a speaker, as "USER: ...", or an element such as
  <chat_history>), or, for a title, the messages before the last one, named as "this conversation" or "the chat";
- outside of the quotation an instruction: "generate a title", "suggest follow-up questions", "create tags".

A title is the beginning of the user's first message, a list is empty. The reply is JSON with the key that the request
shows, or else plain text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

_USER = r"(?:user|human)"
_SPEAKER = rf"^[^\w\n]{{0,4}}(?:{_USER}|assistant|ai|bot|model|response)\b[^\w\n]{{0,4}}:"
_TURN = re.compile(rf"{_SPEAKER}.*$", re.IGNORECASE | re.MULTILINE)
_ASKED = re.compile(rf"^[^\w\n]{{0,4}}{_USER}\b[^\w\n]{{0,4}}:(.*)$", re.IGNORECASE | re.MULTILINE)
_ELEMENT = re.compile(r"<(\w*(?:chat|conversation|history|transcript|messages)\w*)>", re.IGNORECASE)
_VERBS = (
    r"generate|create|write|give|suggest|provide|propose|extract|determine|analy[sz]e|summari[sz]e|return|reply with"
)
_LISTS = r"tags|follow[- ]?ups?|suggestions|questions|quer(?:y|ies)"
_TASK = re.compile(rf"\b(?:{_VERBS})\b[^.?!\n]{{0,100}}?\b(title|emoji|{_LISTS})\b", re.IGNORECASE)
_THIS = r"this|our|above|following|previous|preceding|current|entire|whole"
_BEHIND = r"an?|above|below|so far|history|and|in \d|using|with|based"
_OF_CHAT = re.compile(  # "the chat", but not "the chat room" or "the discussion of Plato"
    rf"\b(?:(?:{_THIS}) (?:conversation|chat|dialogue|discussion)|the (?:conversation|chat))"
    rf"(?=[^\w\s]|\s*\Z|\s*\n|\s+(?:{_BEHIND})\b)",
    re.IGNORECASE,
)
_SHOWN_KEY = re.compile(r'"(\w{1,40})"\s{0,9}:\s{0,9}([\["])')
_LONGEST_INSTRUCTION, _TITLE = 1_000, 60  # characters


def side_task_reply(instructions: str, asked: str, history: Sequence[str]) -> str | None:
    """The reply to a request that is such a task; None for any other. `asked` is its last message, `history` are the
    user's before it, `instructions` the system's."""
    if history:
        task = _TASK.search(asked) if len(asked) <= _LONGEST_INSTRUCTION and _OF_CHAT.search(asked) else None
        if task is None or task[1].lower() != "title":
            return None
        return _written("title", asked, history[0])
    quoted = _quoted(asked)
    outside = f"{instructions}\n{_TURN.sub('', asked.replace(quoted, ''))}"
    if not quoted or not (task := _TASK.search(outside)):
        return None
    first = _ASKED.search(quoted)
    return _written(task[1].lower(), outside, first[1] if first else _ELEMENT.sub("", quoted))


def _quoted(text: str) -> str:
    """The conversation that a text quotes; "" if there is none."""
    if opening := _ELEMENT.search(text):
        end = text.rfind(f"</{opening[1]}>")
        if end > opening.end():
            return text[opening.start() : end]
    turns = [turn[0] for turn in _TURN.finditer(text)]
    is_both = any(map(_ASKED.match, turns)) and not all(map(_ASKED.match, turns))
    return "\n".join(turns) if is_both else ""


def _written(task: str, instruction: str, first: str) -> str:
    """The reply to a task in the form that its instruction shows, for a conversation that begins so."""
    words = " ".join(first.split()).strip("\"'` ")
    title = words if len(words) <= _TITLE else words[:_TITLE].rpartition(" ")[0] or words[:_TITLE]
    text = {"title": title, "emoji": "💬", "query": title}.get(task, "")
    if not (shown := _SHOWN_KEY.search(instruction)):
        return text
    return json.dumps({shown[1]: [] if shown[2] == "[" else text}, ensure_ascii=False)
