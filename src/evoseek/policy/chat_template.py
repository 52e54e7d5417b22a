"""A model's chat template, and how outside text passes through it without becoming template text.

Messages are rendered with a placeholder for each piece of outside text; the result is cut at the placeholders, and
only what lies between them, the template's own text, is encoded with control tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from evoseek.errors import PolicyError
from evoseek.policy.encoding import Encoder, split_trusted
from evoseek.types import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_PLACEHOLDER = re.compile(r"EVOSEEK(\d+)OUTSIDE")
USER = {"role": "user", "content": "Hello."}
WRITTEN = "evoseekwritten"
"""The model's output in a dummy turn."""

Schema = Mapping[str, object]
"""A tool's JSON schema, as templates take it."""


def tool_name(tool: Schema) -> str:
    """The name in a tool's schema; "" without one."""
    function = tool.get("function")
    return str(function.get("name", "")) if isinstance(function, Mapping) else ""


def placeholder(index: int) -> str:
    """The text that stands for the outside text number `index`."""
    return f"EVOSEEK{index}OUTSIDE"


def end_ids(tokenizer: PreTrainedTokenizerBase, end_of_turn: int | None) -> tuple[int, ...]:
    """The ids at which a turn ends: the chat template's closing token and the end of text, as far as they exist."""
    return tuple(dict.fromkeys(i for i in (end_of_turn, tokenizer.eos_token_id) if isinstance(i, int)))


def dummy_turn(tool: str, *results: str, content: str = "") -> list[dict[str, Any]]:
    """The messages of a turn that calls a tool with the argument `WRITTEN`, and of the results that it gets."""
    function = {"name": tool, "arguments": {"query": WRITTEN}}
    call = {"type": "function", "id": "evoseek01", "function": function}  # some templates want nine characters
    return [
        {"role": "assistant", "content": content, "tool_calls": [call]},
        *({"role": "tool", "name": tool, "tool_call_id": "evoseek01", "content": result} for result in results),
    ]


def render_chat(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Schema] = (),
    *,
    generation_prompt: bool = True,
) -> str:
    """The template's text for messages. Raises PolicyError with the template's own complaint."""
    try:
        rendered = tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            tools=[dict(tool) for tool in tools] or None,
            add_generation_prompt=generation_prompt,
            tokenize=False,
        )
    except (TemplateError, TypeError, ValueError) as error:
        roles = ", ".join(str(message["role"]) for message in messages)
        raise PolicyError(
            f"The chat template of this model refuses a conversation with the roles {roles}: {error}. Use prompts "
            "with the roles that it takes, or another model."
        ) from error
    return str(rendered)


def encode_rendered(encoder: Encoder, rendered: str, outside: Sequence[str]) -> tuple[int, ...]:
    """Ids of a rendered conversation, with `outside[i]` instead of placeholder i."""
    ids: list[int] = []
    for index, piece in enumerate(_PLACEHOLDER.split(rendered)):
        ids += encoder.outside(outside[int(piece)]) if index % 2 else encoder.template(piece)
    return tuple(ids)


def encode_messages(
    tokenizer: PreTrainedTokenizerBase, encoder: Encoder, messages: Sequence[Message], tools: Sequence[Schema] = ()
) -> tuple[int, ...]:
    """Ids of a prompt through the chat template, up to where the model begins to write."""
    outside: list[str] = []
    if any(message.tool_calls for message in messages):
        raise PolicyError(
            "A prompt holds a message with tool calls; only what a model samples may call a tool. Use text."
        )
    plain_messages = [{"role": message.role, "content": _protect(message.content, outside)} for message in messages]
    rendered = render_chat(tokenizer, plain_messages, tools)
    if {int(index) for index in _PLACEHOLDER.findall(rendered)} != set(range(len(outside))):
        raise PolicyError(
            "The chat template of this model leaves out part of the prompt's messages (some templates drop a role or "
            "cut its content), so the model would not see the whole question. Use prompts with the roles that the "
            "template shows."
        )
    return encode_rendered(encoder, rendered, outside)


def encode_reply(
    tokenizer: PreTrainedTokenizerBase,
    encoder: Encoder,
    content: str,
    after: Sequence[int],
    end_of_turn: int,
    tools: Sequence[Schema] = (),
) -> tuple[int, ...]:
    """Ids of a user message, marked, that follows the model's output, `after`, up to where the model continues.

    The token that closes the model's turn comes first if `after` lacks it. Raises PolicyError for a template that
    leaves out part of the message.
    """
    outside: list[str] = []
    answer, reply = {"role": "assistant", "content": WRITTEN}, {"role": "user", "content": _protect(content, outside)}
    rendered = render_chat(tokenizer, [USER, answer, reply], tools)
    closing = str(tokenizer.convert_ids_to_tokens(end_of_turn))
    _, _, suffix = rendered.partition(WRITTEN)[2].partition(closing)
    if {int(index) for index in _PLACEHOLDER.findall(suffix)} != set(range(len(outside))):
        raise PolicyError(
            "The chat template of this model leaves out what the user says after the model's turn, so the model could "
            "not be told that its turn was malformed. Set rollout.max_malformed to 0, or choose another model."
        )
    closed = bool(after) and after[-1] == end_of_turn
    return (() if closed else (end_of_turn,)) + encode_rendered(encoder, suffix, outside)


def _protect(content: str, outside: list[str]) -> str:
    """Marked text with a placeholder for each piece of outside text, which is added to `outside`."""
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
    """A dummy conversation with a call and its results, cut in two at the token that closes the model's turn.

    The first part ends with what a model would have written; the second, without that token, is what has to follow
    it: the results in the template's clothes and the opening of the next turn.
    """
    rendered = render_chat(tokenizer, [USER, *dummy_turn(tool, *results)], tools)
    closing = str(tokenizer.convert_ids_to_tokens(end_of_turn))
    end = rendered.index(closing, rendered.index(WRITTEN))
    return rendered[:end], rendered[end + len(closing) :]
