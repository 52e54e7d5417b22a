"""The start-up check of a chat template: its capabilities are determined by rendering dummy conversations."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from evoseek.errors import PolicyError
from evoseek.policy.call_formats import CALL_FORMATS
from evoseek.policy.chat_template import USER, WRITTEN, dummy_turn, observation_text, render_chat
from evoseek.policy.encoding import is_control
from evoseek.types import ToolCall

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TOOL = "evoseek_probe"
_RESULT = 'evoseek "result"'
_REASONING = "evoseekreasoning"
_SCHEMA = {
    "type": "function",
    "function": {
        "name": _TOOL,
        "description": "Probe.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}


@dataclass(frozen=True)
class TemplateReport:
    """The capabilities of a model's chat template.

    Attributes:
        has_template: False for base models without one.
        end_of_turn: the id that closes what the model writes, None if no token does.
        call_format: key of `CALL_FORMATS`, None if tool calls cannot be used; `reason` says why, in words.
        escapes_results: the template writes tool results as JSON strings.
        keeps_prefix: what is rendered later begins with what was rendered and written before. Not so for a template
            that drops the reasoning of earlier turns (Qwen3) or text beside a call (Llama 3).
    """

    has_template: bool
    end_of_turn: int | None = None
    call_format: str | None = None
    escapes_results: bool = False
    keeps_prefix: bool = True
    reason: str = ""

    def __str__(self) -> str:
        if not self.has_template:
            return "The tokenizer has no chat template: prompts are plain text, in the tag format."
        tools = f"tool calls in the {self.call_format} shape" if self.call_format else f"no tool calls ({self.reason})"
        if self.keeps_prefix:
            return f"The chat template has {tools}. It keeps its prefix over turns."
        return (
            f"The chat template has {tools}. It rewrites earlier turns (their reasoning, or text beside a call, is "
            "dropped). The history is kept as it was sampled all the same: only the ids of the observation follow a "
            "turn, and nothing before it changes."
        )


def check_template(
    tokenizer: PreTrainedTokenizerBase, format: Literal["auto", "tags", "tools"] = "auto"
) -> TemplateReport:
    """Determine the capabilities of the chat template. With format `tools`, a model without them is a PolicyError."""
    report = _probe(tokenizer) if tokenizer.chat_template else TemplateReport(False, reason="it has no chat template")
    if format == "tools" and report.call_format is None:
        raise PolicyError(
            f"The tool-call format needs a model whose chat template has tool calls, but of this model's tokenizer: "
            f'{report.reason}. Choose the format "tags" (or "auto"), or a model with tool calls, such as the instruct '
            "models of Qwen2.5 and Llama 3."
        )
    return report


def _probe(tokenizer: PreTrainedTokenizerBase) -> TemplateReport:
    end = _end_of_turn(tokenizer)
    if end is None:
        return TemplateReport(True, reason="its chat template closes the model's turn with no token")
    try:
        prompt = render_chat(tokenizer, [USER], [_SCHEMA])
        rendered = render_chat(tokenizer, [USER, *dummy_turn(_TOOL, _RESULT)], [_SCHEMA])
        keeps_prefix = _keeps_prefix(tokenizer, prompt)
    except PolicyError as error:
        return TemplateReport(True, end, reason=str(error))
    escaped = json.dumps(_RESULT)[1:-1]
    if _TOOL not in prompt:
        reason = "its chat template does not show the tools to the model"
    elif WRITTEN not in rendered or not (escaped in rendered or _RESULT in rendered):
        reason = "its chat template leaves out the calls or their results"
    elif (shape := _call_format(tokenizer, prompt, end)) is None:
        reason = f"its chat template writes calls in an unknown shape (known: {', '.join(CALL_FORMATS)})"
    else:
        return TemplateReport(True, end, shape, escaped in rendered, keeps_prefix)
    return TemplateReport(True, end, keeps_prefix=keeps_prefix, reason=reason)


def _end_of_turn(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The first control token after what the model wrote."""
    answer = {"role": "assistant", "content": WRITTEN}
    try:
        rendered = render_chat(tokenizer, [USER, answer, USER], generation_prompt=False)
    except PolicyError:
        return None
    rest = rendered.partition(WRITTEN)[2].partition(USER["content"])[0]
    control = [(token.content, i) for i, token in tokenizer.added_tokens_decoder.items() if is_control(token)]
    found = [(rest.find(content), -len(content), i) for content, i in control if content in rest]
    return min(found)[2] if found else None


def _call_format(tokenizer: PreTrainedTokenizerBase, prompt: str, end: int) -> str | None:
    """The format whose parser reads the dummy call back from the template's own rendering of it."""
    try:
        written, _ = observation_text(tokenizer, [_SCHEMA], _TOOL, [_RESULT], end)
    except ValueError:  # a turn with a call is closed by another token, or by none
        return None
    if not written.startswith(prompt):  # the prompt opens the reasoning, and earlier turns are shown without it
        prompt = render_chat(tokenizer, [USER], [_SCHEMA], generation_prompt=False)
    written = written.removeprefix(prompt)
    for name, parse in CALL_FORMATS.items():
        try:
            if ToolCall(_TOOL, {"query": WRITTEN}) in parse(written):
                return name
        except ValueError:
            continue
    return None


def _keeps_prefix(tokenizer: PreTrainedTokenizerBase, prompt: str) -> bool:
    """Whether a second turn leaves the first one, with its reasoning, as it was."""
    turn = dummy_turn(_TOOL, _RESULT, content=f"<think>\n{_REASONING}\n</think>\n\n")
    once = render_chat(tokenizer, [USER, *turn], [_SCHEMA])
    twice = render_chat(tokenizer, [USER, *turn, *turn], [_SCHEMA])
    return once.startswith(prompt) and _REASONING in once and twice.startswith(once)
