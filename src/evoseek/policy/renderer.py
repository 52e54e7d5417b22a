"""The choice of a tool-call format for a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from transformers import PreTrainedTokenizerBase

from evoseek.policy.chat_template import Schema
from evoseek.policy.tags import TagRenderer, tag_calls
from evoseek.policy.template_check import check_template
from evoseek.policy.tool_calls import ToolCallRenderer

Format = Literal["auto", "tags", "tools"]


def make_renderer(
    tokenizer: PreTrainedTokenizerBase, format: Format = "auto", tools: Sequence[Schema] = ()
) -> TagRenderer | ToolCallRenderer:
    """The renderer for a tokenizer: `auto` takes tool calls if the chat template has them, else tags.

    `tools` are the schemas of the tools: the tool-call format shows them, the tag format has a tag for each that it
    knows. The renderer's `format` says which one was chosen. Raises PolicyError if the model does not fit.
    """
    if format == "auto":
        format = "tools" if check_template(tokenizer).call_format else "tags"
    return TagRenderer(tokenizer, tag_calls(tools)) if format == "tags" else ToolCallRenderer(tokenizer, tools)
