"""The tag format (Search-R1, arXiv 2503.09516): the model writes tags, and its turn goes on after each observation.

    <think> reasoning </think> <search> query </search>
    <information> passages </information>
    <answer> answer </answer>

A proposer states its question in <question> before the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from transformers import PreTrainedTokenizerBase

from evoseek.policy.chat_template import encode_messages, end_ids
from evoseek.policy.encoding import Encoder
from evoseek.policy.template_check import check_template
from evoseek.types import Action, Message, StopConditions, ToolCall

TAGS = ("search", "information", "think", "answer", "question")
_OBSERVATION = ("\n\n<information>\n", "\n</information>\n\n")
_TAG = re.compile(r"<(/?)(search|answer|question)>")


class TagRenderer:
    """Renders and parses the tag format with any tokenizer; a chat template, if there is one, wraps the prompt only."""

    format: Literal["tags"] = "tags"

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._encoder = Encoder(tokenizer, TAGS)
        ends = end_ids(tokenizer, check_template(tokenizer).end_of_turn)
        self._stop = StopConditions(("</search>", "</answer>"), ends)
        self._opening, self._closing = map(self._encoder.template, _OBSERVATION)

    @property
    def stop(self) -> StopConditions:
        """After a query or an answer, or where the model ends its turn."""
        return self._stop

    def render_prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids of the prompt: through the chat template, or the messages' texts a line each."""
        if self._tokenizer.chat_template:
            return encode_messages(self._tokenizer, self._encoder, messages)
        bos = self._tokenizer.bos_token_id
        ids = [bos] if bos is not None and bos in self._tokenizer.encode("") else []
        for index, message in enumerate(messages):
            ids += (self._encoder.template("\n") if index else ()) + self._encoder.marked(message.content)
        return tuple(ids)

    def parse(self, token_ids: Sequence[int]) -> Action:
        """The first query or answer to be closed ends the turn; what follows it is not read."""
        text = self._encoder.decode(token_ids)
        opened: dict[str, int] = {}
        question = None
        for tag in _TAG.finditer(text):
            closes, name = tag.groups()
            if not closes:
                opened[name] = tag.end()
            elif name in opened:
                content = text[opened.pop(name) : tag.start()].strip()
                if name == "search":
                    return Action(text, (ToolCall("search", {"query": content}),), question=question)
                if name == "answer":
                    return Action(text, answer=content, question=question)
                question = content
        unclosed = " and ".join(f"<{name}>" for name in opened)
        problem = f"{unclosed} is not closed" if opened else "there is neither a <search> nor an <answer>"
        return Action(text, question=question, problem=problem)

    def render_observation(self, texts: Sequence[str], after: Sequence[int] = ()) -> tuple[int, ...]:
        """Ids of <information> with the results' texts; the model goes on in the same turn."""
        return (*self._opening, *self._encoder.outside("\n\n".join(texts)), *self._closing)
