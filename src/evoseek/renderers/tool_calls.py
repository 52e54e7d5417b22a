"""The tool-call format: tools, calls and results in the form of the model's own chat template.

The model's output is never rendered again. The ids after a turn come from a dummy conversation: everything in it after
the end of the model's turn, with the results' texts inserted. `make_renderer` chooses between this format and tags.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Literal

from transformers import PreTrainedTokenizerBase

from evoseek.errors import PolicyError
from evoseek.renderers.chat_template import (
    CALL_FORMATS,
    USER,
    WRITTEN,
    Schema,
    check_template,
    encode_messages,
    encode_rendered,
    encode_reply,
    end_ids,
    observation_text,
    placeholder,
    render_chat,
    tool_name,
)
from evoseek.renderers.encoding import TextEncoder
from evoseek.renderers.tags import TagRenderer, check_read_back, tag_calls
from evoseek.types import Action, Message, StopConditions, ToolCall

_TAGS = ("tool_call", "tool_response", "think", "answer", "question")
_ANSWER = re.compile(r"<answer>(.*?)(</answer>|\Z)", re.DOTALL)  # an unclosed one reaches the end, and does not count
_QUESTION = re.compile(r"<question>(.*?)(</question>|\Z)", re.DOTALL)


class ToolCallRenderer:
    """Renders and parses tool calls. Raises PolicyError for a model whose chat template has none.

    A turn without a call is the answer: the text in its last <answer>, or else everything except the reasoning. If the
    template itself opens the reasoning, a turn begins inside it. A turn ends at any of `eos_ids`, the model's own
    (`models.policy.eos_ids`), such as Llama's `<|eom_id|>` after a call.
    """

    format: Literal["tools"] = "tools"

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, tools: Sequence[Schema], eos_ids: Sequence[int] = ()
    ) -> None:
        self.report = check_template(tokenizer, "tools")
        self._tokenizer, self._tools = tokenizer, tuple(tools)
        self._encoder = TextEncoder(tokenizer, _TAGS)
        self._parse_calls = CALL_FORMATS[str(self.report.call_format)]
        self._end_of_turn = int(self.report.end_of_turn or 0)
        self._stop = StopConditions((), end_ids(tokenizer, self._end_of_turn, eos_ids))
        self._opening = "<think>" if render_chat(tokenizer, [USER], tools).rstrip().endswith("<think>") else ""
        self._suffixes: dict[int, str] = {}
        self._tool = next((name for tool in tools if (name := tool_name(tool))), "tool")

    @property
    def stop(self) -> StopConditions:
        return self._stop

    def render_prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Encode the prompt with the tools' descriptions, up to where the model begins to write."""
        return encode_messages(self._tokenizer, self._encoder, messages, self._tools)

    def parse(self, token_ids: Sequence[int]) -> Action:
        """Parse the calls of a turn, or its answer. The end of the turn must follow an answer, but not a call."""
        text = self._encoder.decode(token_ids)
        ended = bool(token_ids) and token_ids[-1] in self._stop.token_ids
        written = self._encoder.decode(token_ids[:-1] if ended else token_ids)
        written, question = _without_reasoning(self._opening + written), None
        try:
            calls = self._parse_calls(written)
        except ValueError as error:
            return Action(text, problem=str(error))
        if found := _closed(_QUESTION, written):
            question = found[-1].strip()
        if calls:
            return Action(text, calls, question=question)
        if not ended or not written.strip():
            problem = (
                "the turn is cut off before its end" if not ended else "the turn holds neither a call nor an answer"
            )
            return Action(text, question=question, problem=problem)
        answers = _closed(_ANSWER, written) or [written]
        return Action(text, answer=answers[-1].strip(), question=question)

    def render_text(self, text: str) -> tuple[int, ...]:
        return (*self._encoder.template(text), self._end_of_turn)

    def render_turn(self, thought: str, ending: ToolCall | str, question: str = "") -> tuple[int, ...]:
        """Encode a turn as the model would write it: a thought, a question ("" for none), a call with the argument
        `query` or an answer, and the closing token. Raises PolicyError if `parse` would not read the same turn back."""
        if isinstance(ending, str):
            written = f"<answer> {ending} </answer>"
        else:
            query = json.dumps(ending.arguments.get("query"), ensure_ascii=False)
            written = self._written_call(ending.name).replace(json.dumps(WRITTEN), query)
        if question:
            written = f"<question> {question} </question> {written}"
        reasoning = f"{thought}\n</think>\n\n" if thought or self._opening else ""
        opening = "<think>\n" if reasoning and not self._opening else ""  # if the template has not written it
        written = opening + reasoning + written + str(self._tokenizer.convert_ids_to_tokens(self._end_of_turn))
        ids = self._encoder.template(written)
        check_read_back(written, ending, question, self.parse(ids))
        return ids

    def _written_call(self, tool: str) -> str:
        """Return a tool's dummy call as the template shows it in the model's own turn. Some add empty reasoning."""
        prompt = render_chat(self._tokenizer, [USER], self._tools)
        if self._opening:
            prompt = prompt[: prompt.rindex(self._opening)]
        written, _ = observation_text(self._tokenizer, self._tools, tool, [""], self._end_of_turn)
        if not written.startswith(prompt):
            raise PolicyError(
                "The chat template of this model shows a call elsewhere than where the model writes it, so no "
                'demonstration can be written in its form. Set policy.format to "tags".'
            )
        return _without_reasoning(written.removeprefix(prompt)).lstrip()

    def render_observation(self, texts: Sequence[str], after: Sequence[int] = ()) -> tuple[int, ...]:
        """Encode the results after a turn with calls. If the turn, `after`, lacks its closing token, it is added."""
        closing = (self._end_of_turn,) if after and after[-1] != self._end_of_turn else ()
        if self.report.escapes_results:
            texts = [json.dumps(text, ensure_ascii=False)[1:-1] for text in texts]
        return closing + encode_rendered(self._encoder, self._suffix(len(texts)), texts)

    def render_notice(self, text: str, after: Sequence[int]) -> tuple[int, ...]:
        """Encode a user message after the turn, which had no call that a tool could answer."""
        messages = [Message("user", text)]
        return encode_reply(self._tokenizer, self._encoder, messages, after, self._end_of_turn, self._tools)

    def put_off(self, token_ids: Sequence[int]) -> None:
        """Return None: the template alone decides how a call begins."""

    def _suffix(self, results: int) -> str:
        """Return the template's text after a turn with calls, with placeholders for the results."""
        if results not in self._suffixes:
            marks = [placeholder(index) for index in range(results)]
            _, suffix = observation_text(self._tokenizer, self._tools, self._tool, marks, self._end_of_turn)
            self._suffixes[results] = suffix
        return self._suffixes[results]


def make_renderer(
    tokenizer: PreTrainedTokenizerBase,
    format: Literal["auto", "tags", "tools"] = "auto",
    tools: Sequence[Schema] = (),
    eos_ids: Sequence[int] = (),
) -> TagRenderer | ToolCallRenderer:
    """Make the renderer for a tokenizer: `auto` takes tool calls if the chat template has them, else tags.

    The tool-call format shows the schemas `tools`; the tag format has a tag for each tool that it knows. A turn also
    ends at any of `eos_ids`. Raises PolicyError if the model does not fit.
    """
    if format == "auto":
        format = "tools" if check_template(tokenizer).call_format else "tags"
    if format == "tags":
        return TagRenderer(tokenizer, tag_calls(tools), eos_ids)
    return ToolCallRenderer(tokenizer, tools, eos_ids)


def _closed(tag: re.Pattern[str], text: str) -> list[str]:
    return [found[1] for found in tag.finditer(text) if found[2]]


def _without_reasoning(text: str) -> str:
    """Return the text after the reasoning; empty if the reasoning is not closed."""
    return text.rpartition("</think>")[2] if "</think>" in text else text.partition("<think>")[0]
