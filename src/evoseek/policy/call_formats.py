"""How models write tool calls: the two common shapes, each with one parser.

hermes   <tool_call>{"name": ..., "arguments": {...}}</tool_call>, any number of them, other text around (Hermes, Qwen)
json     the whole turn is {"name": ..., "parameters": {...}} (Llama 3)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from evoseek.types import ToolCall

Calls = tuple[ToolCall, ...]
"""Calls in the order written; none if the text is no call."""

_HERMES = re.compile(r"<tool_call>(.*?)(</tool_call>|\Z)", re.DOTALL)  # one that is not closed goes to the end


def parse_hermes(text: str) -> Calls:
    """The calls between tags. Raises ValueError, in words, for one that cannot be read."""
    return tuple(map(_hermes_call, _HERMES.finditer(text)))


def parse_json(text: str) -> Calls:
    """The call that the text as a whole is. Raises ValueError, in words, for one that cannot be read."""
    text = text.strip().removeprefix("<|python_tag|>").strip()
    if not text.startswith("{"):
        return ()
    return (_call(_decode(text), ("parameters", "arguments")),)


CALL_FORMATS: Mapping[str, Callable[[str], Calls]] = {"hermes": parse_hermes, "json": parse_json}
"""Parsers by name, in the order in which they are tried on a model's own template."""


def _hermes_call(found: re.Match[str]) -> ToolCall:
    body, closing = found.groups()
    if not closing:
        raise ValueError("a <tool_call> is not closed")
    return _call(_decode(body), ("arguments", "parameters"))


def _decode(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a tool call is not valid JSON ({error})") from error


def _call(value: Any, argument_keys: tuple[str, ...]) -> ToolCall:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError('a tool call is not an object with a "name"')
    arguments = next((value[key] for key in argument_keys if key in value), {})
    if not isinstance(arguments, dict):
        raise ValueError("the arguments of a tool call are not an object")
    return ToolCall(value["name"], arguments)
