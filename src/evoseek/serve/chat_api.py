"""Requests and replies of OpenAI's chat completions, with an additional object `evoseek`.

    POST /v1/chat/completions {"model": "...", "messages": [{"role": "user", "content": "who ...?"}], "stream": false}

With a `folder` in the request, only the documents in it are searched.

The last message, the user's, is the question. Earlier messages of user and assistant are the conversation. The model
has its own prompt and tools, so it does not get messages of the system and of tools, or parts other than text;
`evoseek.ignored` names them. If a conversation is long, its last messages are read; `evoseek.dropped_messages` counts
the others. Sampling parameters have no effect: answers are greedy. `usage` counts the model's tokens, for a model
behind an endpoint as reported there. A whole reply holds in `evoseek` the output of `evoseek ask --json`. In a stream
it comes with the last chunk, after one chunk for each event:

    {"event": "turn", "text": "..."}                                      what the model wrote
    {"event": "call", "tool": "search", "arguments": {...}}               a call that it made
    {"event": "found", "tool": "search", "arguments": {...}, "passages": [{"id", "label", "text", "file", ...}]}
    {"event": "answer", "answer": "...", "supported": true, "support": [{"id", "label", "text", "file", ...}], ...}

A server that keeps feedback takes a verdict on an answer, by the id of its reply:

    POST /v1/feedback {"id": "chatcmpl-...", "verdict": "wrong", "right_answer": "...", "note": "see page 3"}

Chat clients also request titles, tags or suggestions. Such a request is answered from its own words; `evoseek` then
holds only `{"side_task": true}`. In any client's wording, in English, it has both of these:

- a conversation: quoted in its only message (lines that begin with a speaker, as "USER: ...", or an element such as
  <chat_history>), or, for a title, the messages before the last one, named as "this conversation" or "the chat";
- an instruction outside of the quotation: "generate a title", "suggest follow-up questions", "create tags".

A title is the beginning of the user's first message, a list is empty. The reply is JSON with the request's key, or else
plain text.

If the server has a passage's file, the passage has a `link` to it, relative to the server's address.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import PurePath
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evoseek.agent.shown import Answered, citations
from evoseek.errors import DataError, first_problem
from evoseek.questions.feedback import MAX_ANSWER, MAX_NOTE, Feedback
from evoseek.serve.answer_queue import PendingAnswer, reply_id
from evoseek.serve.connection import error_body, status_of
from evoseek.text.scripts import find_citations, well_formed, without_citations
from evoseek.types import Action, Message, StopReason, ToolResult

MAX_MESSAGES, MAX_QUESTION = 256, 20_000
FILES = "v1/files"
_UNLINKED = (".jsonl", ".mbox", ".gz")  # files of many documents, or of none that a browser opens
_Model = TypeVar("_Model", bound=BaseModel)
_PAUSE_S = 10.0
_UNSUPPORTED = "(No passage that was found supports this.)"


class _StrictBody(BaseModel):
    model_config = ConfigDict(strict=True)  # "yes" is no true, and true is no number


class _ContentPart(_StrictBody):
    type: str
    text: str | None = None


class _ChatMessage(_StrictBody):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[_ContentPart] | None = None

    @property
    def text(self) -> str:
        texts = [self.content] if isinstance(self.content, str) else [part.text or "" for part in self.content or ()]
        return well_formed("\n".join(texts)).strip()

    @property
    def other_parts(self) -> set[str]:
        """The types of parts other than text."""
        return set() if isinstance(self.content, str) else {part.type for part in self.content or ()} - {"text"}


class _StreamOptions(_StrictBody):
    include_usage: bool | None = None


class FeedbackRequest(_StrictBody):
    """A verdict on an answer of this server, named by its reply's id; for a wrong answer maybe the right one, or where
    to look."""

    model_config = ConfigDict(strict=True, extra="forbid")
    id: str
    verdict: Literal["right", "wrong"]
    right_answer: str = Field(default="", max_length=MAX_ANSWER)
    note: str = Field(default="", max_length=MAX_NOTE)

    def over(self, answer: Feedback) -> Feedback:
        right = "" if self.verdict == "right" else well_formed(self.right_answer).strip()
        note, now = well_formed(self.note).strip(), f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        return replace(answer, time=now, verdict=self.verdict, right_answer=right, note=note)


def judgeable(id: str, answered: Answered) -> Feedback:
    """Return the record of an answer with a placeholder for a later verdict."""
    found: dict[str, Any] = answered.json
    return Feedback(
        id,
        "",
        answered.trajectory.question.text,
        answered.answer and without_citations(answered.answer),
        "right",
        earlier=answered.earlier,
        searches=tuple({**one, "found": [passage["id"] for passage in one["found"]]} for one in found["searches"]),
        citations=tuple(str(passage["id"]) for passage in found["support"]),
        unsupported=answered.trajectory.answer if answered.answer is None else None,
    )


class ChatRequest(_StrictBody):
    """A chat request: the last message, after a conversation."""

    model: str
    messages: list[_ChatMessage] = Field(min_length=1)
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: int | None = Field(default=None, ge=1, le=1)
    folder: str = Field(default="", max_length=1_000)

    @property
    def has_usage(self) -> bool:
        """Whether a stream ends with token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def question(self) -> str:
        return self.messages[-1].text

    @cached_property
    def conversation(self) -> list[Message]:
        """The messages of user and assistant before the question."""
        return [Message(m.role, m.text) for m in self.messages[:-1] if m.role in ("user", "assistant") and m.text]

    @cached_property
    def history(self) -> tuple[Message, ...]:
        """The conversation, or its last messages if it is long, beginning with the user's."""
        kept = self.conversation[-MAX_MESSAGES + 1 :]
        first = next((place for place, message in enumerate(kept) if message.role == "user"), 0)
        return tuple(kept if len(kept) == len(self.conversation) else kept[first:])

    @property
    def ignored(self) -> list[str]:
        """The roles and part types that the model does not get."""
        roles = {message.role for message in self.messages[:-1]} - {"user", "assistant"}
        return sorted(roles.union(*(message.other_parts for message in self.messages[:-1])))

    @property
    def side_task(self) -> str | None:
        """The reply to a request that is not about the documents; None for a question."""
        system = "\n".join(message.text for message in self.messages if message.role in ("system", "developer"))
        is_chat = any(message.role == "assistant" for message in self.conversation)
        return side_task_reply(system, self.question, [m.content for m in self.conversation] if is_chat else [])


def read_feedback(body: bytes) -> FeedbackRequest:
    """Read the verdict in a body. Raises DataError for anything else."""
    return _validated(FeedbackRequest, body, 'an object such as {"id": "chatcmpl-...", "verdict": "right"}')


def read_request(body: bytes) -> ChatRequest:
    """Read the request in a body. Raises DataError for anything else."""
    request = _validated(ChatRequest, body, "a chat completion's request")
    if request.messages[-1].role != "user" or not request.question:
        raise DataError("The last message is not a user's text. Expected the question there.")
    if others := sorted(request.messages[-1].other_parts):
        raise DataError(
            f"The question has a part of the type {others[0][:100]!r}, but this agent reads only text. Leave it out."
        )
    if len(request.question) > MAX_QUESTION:
        raise DataError(f"The question has {len(request.question):,} characters. At most {MAX_QUESTION:,} are read.")
    return request


def _validated(model: type[_Model], body: bytes, expected: str) -> _Model:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise DataError(f"{first_problem(error)}. Expected {expected} in JSON.") from error


def answer_object(answered: Answered, request: ChatRequest, files: Collection[str]) -> dict[str, object]:
    """Return the object `evoseek` of an answer."""
    answer: dict[str, Any] = answered.json
    dropped = answered.dropped + len(request.conversation) - len(request.history)
    own = {"dropped_messages": dropped, "ignored": request.ignored}
    return {**answer, "support": linked(answer["support"], files), **own}


def linked(passages: Iterable[Mapping[str, object]], files: Collection[str]) -> list[dict[str, object]]:
    """Return citations with a `link`, relative to the server's address, to the file, if it is one of `files`, and its
    page."""
    return [{**passage, **_link(str(passage.get("file")), passage.get("page"), files)} for passage in passages]


def _link(file: str, page: object, files: Collection[str]) -> dict[str, object]:
    if file not in files or PurePath(file).suffix.lower() in _UNLINKED:
        return {}
    return {"link": f"{FILES}/{quote(file)}" + (f"#page={page}" if page else "")}


def completion(
    pending: PendingAnswer, answered: Answered, request: ChatRequest, files: Collection[str] = ()
) -> dict[str, object]:
    """Return a whole reply, with links to its documents among `files`."""
    message = {"role": "assistant", "content": _content(answered), "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": _finish(answered), "logprobs": None}
    head = _head(pending.id, "chat.completion", request.model)
    return {**head, "choices": [choice], "usage": _usage(answered), "evoseek": answer_object(answered, request, files)}


def side_reply(request: ChatRequest, text: str) -> dict[str, object]:
    """Return a whole reply that no model wrote."""
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    head = _head(reply_id(), "chat.completion", request.model)
    return {**head, "choices": [choice], "usage": _tokens(0, 0), "evoseek": {"side_task": True}}


async def side_stream(request: ChatRequest, text: str) -> AsyncIterator[str]:
    """Stream such a reply as server-sent events."""
    head = _head(reply_id(), "chat.completion.chunk", request.model)
    yield _sent({**head, "choices": [_delta({"role": "assistant", "content": text})]})
    yield _sent({**head, "choices": [_delta({}, "stop")], "evoseek": {"side_task": True}})
    if request.has_usage:
        yield _sent({**head, "choices": [], "usage": _tokens(0, 0)})
    yield "data: [DONE]\n\n"


async def stream(pending: PendingAnswer, request: ChatRequest, files: Collection[str] = ()) -> AsyncIterator[str]:
    """Stream the reply as server-sent events. The end of the iteration, for any reason, ends the rollout."""
    head = _head(pending.id, "chat.completion.chunk", request.model)
    try:
        yield _sent({**head, "choices": [_delta({"role": "assistant", "content": ""})]})
        async for record in pending.events(_PAUSE_S):
            if record is None:
                yield ": still at work\n\n"  # a comment, which clients skip: it shows whether the client is still there
            else:
                for event in _events(record, files):
                    yield _sent({**head, "choices": [_delta({})], "evoseek": event})
        answered = await pending.answered()
        if failure := answered.trajectory.failure:
            yield _sent(error_body(502, f"The question could not be answered: {failure}"))
            return
        yield _sent({**head, "choices": [_delta({"content": _content(answered)})]})
        last = {"event": "answer", **answer_object(answered, request, files)}
        yield _sent({**head, "choices": [_delta({}, _finish(answered))], "evoseek": last})
        if request.has_usage:
            yield _sent({**head, "choices": [], "usage": _usage(answered)})
        yield "data: [DONE]\n\n"
    except Exception as error:  # from any model or tool; the client gets it before the stream ends
        yield _sent(error_body(*status_of(error)))
    finally:
        pending.task.cancel()


def _head(id: str, kind: str, model: str) -> dict[str, object]:
    return {"id": id, "object": kind, "created": int(time.time()), "model": model}


def _delta(delta: Mapping[str, object], finish: str | None = None) -> dict[str, object]:
    return {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}


def _sent(value: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"  # ASCII: no client takes a character for the end of a line


def _events(record: Action | ToolResult, files: Collection[str]) -> Iterator[dict[str, object]]:
    if isinstance(record, Action):
        yield {"event": "turn", "text": record.text}
        for call in record.tool_calls:
            yield {"event": "call", "tool": call.name, "arguments": dict(call.arguments)}
    else:
        call, passages = record.call, linked(citations(record.passages), files)
        yield {"event": "found", "tool": call.name, "arguments": dict(call.arguments), "passages": passages}


def _content(answered: Answered) -> str:
    """Return the reply's text, with the mark of an unsupported answer and the cited sources, for clients that read
    nothing else."""
    if not answered.answer:
        return answered.refusal
    if not answered.support.is_given:
        return f"{answered.answer}\n\n{_UNSUPPORTED}"
    support: Any = answered.json["support"] if find_citations(answered.answer)[1] else ()
    sources = ["".join(f"[{number}]" for number in one["numbers"]) + f" {one['label']}" for one in support]
    return "\n\n".join([answered.answer, *(["\n".join(sources)] if sources else ())])


def _finish(answered: Answered) -> str:
    return "length" if answered.trajectory.stop_reason is StopReason.MAX_TOKENS else "stop"


def _usage(answered: Answered) -> dict[str, int]:
    """Return the numbers of tokens that the model got and wrote; 0 if its server does not count them."""
    trajectory = answered.trajectory
    if not trajectory.segments:
        return _tokens(*(trajectory.chat_tokens or (0, 0)))
    written = trajectory.num_action_tokens
    return _tokens(len(trajectory.token_ids) - written, written)


def _tokens(given: int, written: int) -> dict[str, int]:
    return {"prompt_tokens": given, "completion_tokens": written, "total_tokens": given + written}


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
    """Return the reply to a request for such a task, or None. `asked` is its last message, `history` the user's earlier
    messages, `instructions` the system's."""
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
    """Return the conversation that a text quotes, or ""."""
    if opening := _ELEMENT.search(text):
        end = text.rfind(f"</{opening[1]}>")
        if end > opening.end():
            return text[opening.start() : end]
    turns = [turn[0] for turn in _TURN.finditer(text)]
    is_both = any(map(_ASKED.match, turns)) and not all(map(_ASKED.match, turns))
    return "\n".join(turns) if is_both else ""


def _written(task: str, instruction: str, first: str) -> str:
    """Return the reply to a task in its instruction's form, for a conversation with this beginning."""
    words = " ".join(first.split()).strip("\"'` ")
    title = words if len(words) <= _TITLE else words[:_TITLE].rpartition(" ")[0] or words[:_TITLE]
    text = {"title": title, "emoji": "💬", "query": title}.get(task, "")
    if not (shown := _SHOWN_KEY.search(instruction)):
        return text
    return json.dumps({shown[1]: [] if shown[2] == "[" else text}, ensure_ascii=False)
