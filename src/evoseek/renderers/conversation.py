"""The conversations of other programs to token ids and back, as an OpenAI-compatible server has them: any messages,
with calls and results. Their text keeps the tags of the format, which the program may have written on purpose, but
never becomes a control token."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from evoseek.renderers.chat_template import Schema, check_template, encode_messages, encode_reply, tool_name
from evoseek.renderers.encoding import TextEncoder, plain, trusted
from evoseek.renderers.tags import OBSERVATION, TAGS, TagRenderer
from evoseek.renderers.tool_calls import make_renderer
from evoseek.text.scripts import well_formed
from evoseek.types import Action, Message, StopConditions, ToolCall

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Format = Literal["auto", "tags", "tools"]


@dataclass(frozen=True, slots=True)
class WrittenReply:
    """A completion as a program gets it: its text, or its calls, and the thought before them."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    thought: str = ""


class Conversation:
    """Renders the messages of programs that offer these tools. Without tools the model's text is passed on as it is;
    with tools, calls and answers are read in the format. Raises PolicyError for tools that the format cannot call."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, format: Format, tools: Sequence[Schema], eos_ids: Sequence[int] = ()
    ) -> None:
        self._tokenizer, self._tools = tokenizer, tuple(tools)
        self._own = make_renderer(tokenizer, format, tools, eos_ids)
        tags = (*TAGS, *map(tool_name, tools)) if isinstance(self._own, TagRenderer) else ()
        self._encoder = TextEncoder(tokenizer)
        self._tag = re.compile(rf"(</?(?:{'|'.join(map(re.escape, tags))})>)") if tags else None
        written = "".join(f"<{tag}></{tag}>" for tag in tags)
        self._forbidden = self._encoder.control_ids.difference(self._encoder.template(written))
        report = check_template(tokenizer)
        self._end_of_turn, self._escapes = report.end_of_turn, report.escapes_results

    def stop(self, strings: Sequence[str]) -> StopConditions:
        """Return where a completion ends: where the model ends its turn, at these strings, and after a call."""
        own = self._own.stop
        kept = dict.fromkeys((*strings, *(own.strings if self._tools else ())))
        return StopConditions(tuple(kept), own.token_ids)

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Return the ids of a whole conversation, up to where the model begins to write. Raises PolicyError."""
        marked = [self._marked(message) for message in messages]
        if isinstance(self._own, TagRenderer):
            return self._own.render_prompt(marked)
        return encode_messages(self._tokenizer, self._encoder, marked, self._tools, has_calls=True)

    def after(self, messages: Sequence[Message], written: Sequence[int]) -> tuple[int, ...]:
        """Return the ids of results or messages that follow a completion, whose ids are `written`, up to where the
        model continues. Raises PolicyError."""
        results = [message.content for message in messages if message.role == "tool"]
        if len(results) == len(messages):
            return self._own.render_observation(results, written)
        marked = [self._marked(message) for message in messages]
        if self._end_of_turn is not None:
            return encode_reply(self._tokenizer, self._encoder, marked, written, self._end_of_turn, self._tools)
        ids = self._own.render_observation(results, written) if results else ()
        for message in marked:
            if message.role != "tool":
                ids += self._own.render_notice(message.content, ids or written)
        return ids

    def text(self, token_ids: Sequence[int]) -> str:
        """Return a completion's text, without the token that ends the turn."""
        ended = bool(token_ids) and token_ids[-1] in self._own.stop.token_ids
        return self._encoder.decode(token_ids[:-1] if ended else token_ids)

    def action(self, token_ids: Sequence[int]) -> Action:
        """Return a completion as an action: its text, and with tools its calls."""
        return self._own.parse(token_ids) if self._tools else Action(self._encoder.decode(token_ids))

    def read(self, token_ids: Sequence[int]) -> WrittenReply:
        """Read a completion. A malformed call is text."""
        text = self.text(token_ids)
        if not self._tools:
            return WrittenReply(text.strip())
        action = self._own.parse(token_ids)
        before, closed, after = text.rpartition("</think>")
        thought = before.rpartition("<think>")[2].strip() if closed else ""
        if action.tool_calls or (action.answer is not None and isinstance(self._own, TagRenderer)):
            return WrittenReply(action.answer or "", action.tool_calls, thought)
        return WrittenReply(after.strip(), (), thought)

    def _marked(self, message: Message) -> Message:
        """Mark the text of a message as template text, except for what would become a control token. In the tag format,
        write its calls and results in tags."""
        content = plain(well_formed(message.content))
        if message.role == "tool":
            if isinstance(self._own, TagRenderer):
                opening, closing = map(str.strip, OBSERVATION)
                return Message("user", f"{trusted(opening)}\n{content}\n{trusted(closing)}")
            return replace(message, content=json.dumps(content, ensure_ascii=False)[1:-1] if self._escapes else content)
        if message.tool_calls and isinstance(self._own, TagRenderer):
            turns = [self._own.render_turn("", call) for call in message.tool_calls]
            content = " ".join(filter(None, (content, *map(self._encoder.decode, turns))))
            message = replace(message, tool_calls=())
        return replace(message, content=self._trusted(content))

    def _trusted(self, content: str) -> str:
        if not self._forbidden.intersection(self._encoder.template(content)):
            return trusted(content) if content else ""
        pieces = self._tag.split(content) if self._tag else [content]
        return "".join(trusted(piece) if number % 2 else piece for number, piece in enumerate(pieces))
