"""The tag format in messages, for a chat model: its replies contain the calls, user messages the results.

user        the prompt
assistant   <think> reasoning </think> <search> query </search>
user        <information> passages </information>
assistant   <answer> answer </answer>
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from evoseek.policy.encoding import trusted
from evoseek.policy.tags import OBSERVATION, SEARCH, TagCall, read_action, stop_strings
from evoseek.types import Action, Message

# A reasoning model's block; if its template has opened it already, the reply contains only the end. It ends before
# another one is opened: otherwise a block that is never closed would extend into what the model invents after its call.
_THOUGHT = re.compile(r"\A\s*+(?:<think>)?+(?:(?!<think>).)*?</think>", re.DOTALL)


class TagMessages:
    """The counterpart of `TagRenderer` for messages, in which only the format's own tags are template text."""

    def __init__(self, calls: Mapping[str, TagCall] = SEARCH) -> None:
        self._calls = calls
        self._stop = re.compile("|".join(map(re.escape, stop_strings(calls))))
        self._tag = re.compile(rf"(</?(?:{'|'.join(map(re.escape, ('think', *calls, 'answer')))})>)")

    def parse(self, reply: str) -> Action:
        """The action after the block of thought, in which tags are only thought of. Its text is the reply as far as a
        rollout's completion would go: what follows the first call or answer is dropped."""
        thought = _THOUGHT.match(reply)
        start = thought.end() if thought else 0
        stop = self._stop.search(reply, start)
        end = stop.end() if stop else len(reply)
        action = read_action(reply[start:end], self._calls)
        return Action(reply[:end], action.tool_calls, action.answer, action.question, action.problem)

    def said(self, action: Action) -> Message:
        """The model's own turn. It may repeat the text of a page, so none of its control strings becomes a token."""
        pieces = self._tag.split(action.text)
        return Message("assistant", "".join(trusted(piece) if i % 2 else piece for i, piece in enumerate(pieces)))

    def observation(self, texts: Sequence[str]) -> Message:
        """The results of a turn's calls."""
        opening, closing = OBSERVATION
        return Message("user", trusted(opening.lstrip()) + "\n\n".join(texts) + trusted(closing.rstrip()))
