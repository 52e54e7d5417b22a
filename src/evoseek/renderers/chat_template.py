"""A model's chat template: its capabilities, and how outside text passes through it without becoming template text.

Messages are rendered with a placeholder for each piece of outside text, and the result is cut at the placeholders. Only
the template's own text between them is encoded with control tokens. Capabilities are determined by rendering dummy
conversations. Tool calls have one of two common shapes:

hermes   <tool_call>{"name": ..., "arguments": {...}}</tool_call>, any number of them, other text around (Hermes, Qwen)
json     the whole turn is {"name": ..., "parameters": {...}} (Llama 3)
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast

from jinja2 import TemplateError

from evoseek.errors import PolicyError
from evoseek.renderers.encoding import TextEncoder, is_control, split_trusted
from evoseek.text.scripts import well_formed
from evoseek.text.templates import bounded
from evoseek.types import Message, ToolCall

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_PLACEHOLDER = re.compile(r"EVOSEEK(\d+)OUTSIDE")
USER = {"role": "user", "content": "Hello."}
WRITTEN = "evoseekwritten"
"""The model's output in a dummy turn."""

Schema = Mapping[str, object]
"""A tool's JSON schema, as templates take it."""


def tool_name(tool: Schema) -> str:
    """Return the name in a tool's schema; "" without one."""
    function = tool.get("function")
    return str(function.get("name", "")) if isinstance(function, Mapping) else ""


def placeholder(index: int) -> str:
    """Return the placeholder for piece `index` of outside text."""
    return f"EVOSEEK{index}OUTSIDE"


def end_ids(
    tokenizer: PreTrainedTokenizerBase, end_of_turn: int | None, eos_ids: Sequence[int] = ()
) -> tuple[int, ...]:
    """Return the ids that end a turn: the chat template's closing token and the end of text, if they exist, and the
    model's own, `eos_ids`."""
    return tuple(dict.fromkeys(i for i in (end_of_turn, tokenizer.eos_token_id, *eos_ids) if isinstance(i, int)))


def dummy_turn(tool: str, *results: str) -> list[dict[str, Any]]:
    """Return the messages of a turn that calls a tool with the argument `WRITTEN`, and the tool's results."""
    function = {"name": tool, "arguments": {"query": WRITTEN}}
    call = {"type": "function", "id": "evoseek01", "function": function}  # some templates require nine characters
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        *({"role": "tool", "name": tool, "tool_call_id": "evoseek01", "content": result} for result in results),
    ]


def render_chat(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Schema] = (),
    *,
    generation_prompt: bool = True,
) -> str:
    """Render messages with the template. Raises PolicyError with the template's own complaint."""
    roles = tuple(str(message["role"]) for message in messages)

    def render() -> str:
        rendered = tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            tools=[dict(tool) for tool in tools] or None,
            add_generation_prompt=generation_prompt,
            tokenize=False,
        )
        return str(rendered)

    try:
        return bounded(str(tokenizer.chat_template), render, (roles, bool(tools), generation_prompt))
    except TemplateError as error:
        raise PolicyError(
            f"The chat template of this model refuses a conversation with the roles {', '.join(roles)}: {error}. Use "
            "prompts with the roles that it takes, or another model.",
            code="chat_template.refused",
        ) from error


def encode_rendered(encoder: TextEncoder, rendered: str, outside: Sequence[str]) -> tuple[int, ...]:
    """Encode a rendered conversation, with `outside[i]` in place of placeholder i."""
    ids: list[int] = []
    for index, piece in enumerate(_PLACEHOLDER.split(rendered)):
        ids += encoder.outside(outside[int(piece)]) if index % 2 else encoder.template(piece)
    return tuple(ids)


def encode_messages(
    tokenizer: PreTrainedTokenizerBase,
    encoder: TextEncoder,
    messages: Sequence[Message],
    tools: Sequence[Schema] = (),
    *,
    has_calls: bool = False,
) -> tuple[int, ...]:
    """Encode a prompt through the chat template, up to where the model begins to write. It may hold calls only if it
    `has_calls`."""
    outside: list[str] = []
    if not has_calls and any(message.tool_calls for message in messages):
        raise PolicyError(
            "A prompt holds a message with tool calls; only what a model samples may call a tool. Use text."
        )
    rendered = render_chat(tokenizer, _as_template(messages, outside), tools)
    if {int(index) for index in _PLACEHOLDER.findall(rendered)} != set(range(len(outside))):
        raise PolicyError(
            "The chat template of this model leaves out part of the prompt's messages (some templates drop a role or "
            "cut its content), so the model would not see the whole question. Use prompts with the roles that the "
            "template shows.",
            code="chat_template.leaves_out",
        )
    return encode_rendered(encoder, rendered, outside)


def encode_reply(
    tokenizer: PreTrainedTokenizerBase,
    encoder: TextEncoder,
    messages: Sequence[Message],
    after: Sequence[int],
    end_of_turn: int,
    tools: Sequence[Schema] = (),
) -> tuple[int, ...]:
    """Encode marked messages after the model's output, `after`, up to where the model continues.

    If `after` lacks the token that closes the model's turn, the token comes first. Raises PolicyError for a template
    that leaves out part of a message.
    """
    outside: list[str] = []
    answer = {"role": "assistant", "content": WRITTEN}
    if messages[0].role == "tool":
        answer = dummy_turn(next(map(tool_name, tools), "tool"))[0]
    rendered = render_chat(tokenizer, [USER, answer, *_as_template(messages, outside)], tools)
    closing = str(tokenizer.convert_ids_to_tokens(end_of_turn))
    _, _, suffix = rendered.partition(WRITTEN)[2].partition(closing)
    if {int(index) for index in _PLACEHOLDER.findall(suffix)} != set(range(len(outside))):
        raise PolicyError(
            "The chat template of this model leaves out a user message after the model's turn, so the model would "
            "not see the notice that its turn was malformed. Set rollout.max_malformed to 0, or choose another model."
        )
    closed = bool(after) and after[-1] == end_of_turn
    return (() if closed else (end_of_turn,)) + encode_rendered(encoder, suffix, outside)


def _as_template(messages: Sequence[Message], outside: list[str]) -> list[dict[str, Any]]:
    """Return messages as templates take them, with placeholders for outside text and the texts within calls."""
    made: list[dict[str, Any]] = []
    called = "tool"
    for message in messages:
        one: dict[str, Any] = {"role": message.role, "content": _protect(message.content, outside)}
        if message.role == "tool":
            one |= {"name": called, "tool_call_id": "evoseek01"}
        if message.tool_calls:
            functions = [
                (_protect_values(call.name, outside), _protect_values(dict(call.arguments), outside))
                for call in message.tool_calls
            ]
            one["tool_calls"] = [
                {"type": "function", "id": "evoseek01", "function": {"name": name, "arguments": arguments}}
                for name, arguments in functions
            ]
            called = functions[0][0]
        made.append(one)
    return made


def _protect_values(value: Any, outside: list[str]) -> Any:
    """Replace the texts within a JSON value, names too, by placeholders for the texts as JSON has them."""
    match value:
        case str():
            outside.append(json.dumps(well_formed(value), ensure_ascii=False)[1:-1])
            return placeholder(len(outside) - 1)
        case list():
            return [_protect_values(item, outside) for item in cast("list[object]", value)]
        case dict():
            items = cast("dict[str, object]", value).items()
            return {_protect_values(name, outside): _protect_values(item, outside) for name, item in items}
        case _:
            return value


def _protect(content: str, outside: list[str]) -> str:
    """Replace each piece of outside text in marked text by a placeholder, and append the piece to `outside`."""
    protected = ""
    for is_template, piece in split_trusted(content):
        if is_template:
            protected += piece
        else:
            protected += placeholder(len(outside))
            outside.append(piece)
    return protected


def observation_text(
    tokenizer: PreTrainedTokenizerBase, tools: Sequence[Schema], tool: str, results: Sequence[str], end_of_turn: int
) -> tuple[str, str]:
    """Return a dummy conversation with a call and its results, cut in two at the token that closes the model's turn.

    The first part ends with what a model would have written; the second, without that token, is what has to follow
    it: the results in the template's clothes and the opening of the next turn.
    """
    rendered = render_chat(tokenizer, [USER, *dummy_turn(tool, *results)], tools)
    closing = str(tokenizer.convert_ids_to_tokens(end_of_turn))
    end = rendered.index(closing, rendered.index(WRITTEN))
    return rendered[:end], rendered[end + len(closing) :]


Calls = tuple[ToolCall, ...]
"""Calls in the order written; none if the text is no call."""

_HERMES = re.compile(r"<tool_call>(.*?)(</tool_call>|\Z)", re.DOTALL)  # one that is not closed goes to the end


def parse_hermes(text: str) -> Calls:
    """Parse the calls between tags. Raises ValueError with the reason for an invalid one."""
    return tuple(map(_hermes_call, _HERMES.finditer(text)))


def parse_json(text: str) -> Calls:
    """Parse the whole text as one call. Raises ValueError with the reason if it is invalid."""
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
        return _proper(json.loads(text, parse_constant=_refuse, parse_float=_finite))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a tool call is not valid JSON ({error})") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no value of JSON")


def _finite(text: str) -> float:
    return number if math.isfinite(number := float(text)) else _refuse(text)


def _proper(value: Any) -> Any:
    """Return a JSON value whose texts can be encoded: an escape such as "\\ud83d" by itself is half a character."""
    match value:
        case str():
            return well_formed(value)
        case list():
            return [_proper(item) for item in cast("list[object]", value)]
        case dict():
            return {well_formed(name): _proper(item) for name, item in cast("dict[str, object]", value).items()}
        case _:
            return value


def _call(value: Any, argument_keys: tuple[str, ...]) -> ToolCall:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError('a tool call is not an object with a "name"')
    arguments = next((value[key] for key in argument_keys if key in value), {})
    if not isinstance(arguments, dict):
        raise ValueError("the arguments of a tool call are not an object")
    return ToolCall(value["name"], arguments)


_TOOL = "evoseek_probe"
_RESULT = 'evoseek "result"'
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
    """

    has_template: bool
    end_of_turn: int | None = None
    call_format: str | None = None
    escapes_results: bool = False
    reason: str = ""

    def __str__(self) -> str:
        if not self.has_template:
            return "The tokenizer has no chat template: prompts are plain text, in the tag format."
        tools = f"tool calls in the {self.call_format} shape" if self.call_format else f"no tool calls ({self.reason})"
        return f"The chat template has {tools}."


def check_template(
    tokenizer: PreTrainedTokenizerBase, format: Literal["auto", "tags", "tools"] = "auto"
) -> TemplateReport:
    """Determine the capabilities of the chat template. With format `tools`, a model without them is a PolicyError."""
    report = _probe(tokenizer) if tokenizer.chat_template else TemplateReport(False, reason="it has no chat template")
    if format == "tools" and report.call_format is None:
        raise PolicyError(
            f"The tool-call format needs a model whose chat template has tool calls, but of this model's tokenizer: "
            f'{report.reason}. Choose the format "tags" (or "auto"), or a model with tool calls, such as the instruct '
            "models of Qwen2.5 and Llama 3.",
            code="chat_template.no_tool_calls",
        )
    return report


def _probe(tokenizer: PreTrainedTokenizerBase) -> TemplateReport:
    end = _end_of_turn(tokenizer)
    if end is None:
        return TemplateReport(True, reason="its chat template closes the model's turn with no token")
    try:
        prompt = render_chat(tokenizer, [USER], [_SCHEMA])
        rendered = render_chat(tokenizer, [USER, *dummy_turn(_TOOL, _RESULT)], [_SCHEMA])
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
        return TemplateReport(True, end, shape, escaped in rendered)
    return TemplateReport(True, end, reason=reason)


def _end_of_turn(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the first control token after the model's text."""
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
    """Return the format whose parser reads the dummy call back from the template's rendering."""
    try:
        written, _ = observation_text(tokenizer, [_SCHEMA], _TOOL, [_RESULT], end)
    except ValueError:  # a turn with a call ends with another token, or with none
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
