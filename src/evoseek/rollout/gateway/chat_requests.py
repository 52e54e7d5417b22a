"""OpenAI's chat completions: requests and replies of the gateway.

What a program may not choose has no effect: the run's own temperature is used, without top_p, penalties, seed or a
forced form (`response_format`, `tool_choice` except `none`). A stream is made from the finished reply.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evoseek.errors import DataError, first_problem
from evoseek.rollout.gateway.calls import Said
from evoseek.types import Completion, Message, ToolCall

if TYPE_CHECKING:
    from evoseek.renderers.conversation import WrittenReply

MODEL = "policy"
_STOP_STRINGS, _CHOICES = 16, 128


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _PartBody(_Lenient):
    type: Literal["text", "input_text", "output_text", "refusal"]
    text: str = ""


class _FunctionBody(_Lenient):
    name: str
    arguments: str | dict[str, Any] = "{}"


class _CallBody(_Lenient):
    function: _FunctionBody


class _MessageBody(_Lenient):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_PartBody] | None = None
    tool_calls: list[_CallBody] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None

    def said(self) -> Said:
        parts = self.content if isinstance(self.content, list) else None
        text = "\n".join(part.text for part in parts) if parts is not None else cast("str | None", self.content) or ""
        role = "system" if self.role == "developer" else self.role
        calls = tuple(_call(one.function) for one in self.tool_calls or ())
        return Said(Message(role, text, calls), (self.reasoning or self.reasoning_content or "").strip())


class _ToolBody(_Lenient):
    type: Literal["function"]
    function: dict[str, Any]


class _StreamBody(_Lenient):
    include_usage: bool = False


class AgentRequest(_Lenient):
    """The body of a request."""

    messages: list[_MessageBody] = Field(min_length=1)
    tools: list[_ToolBody] | None = None
    tool_choice: str | dict[str, Any] | None = None
    stop: str | list[str] | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    n: int | None = Field(default=None, ge=1, le=_CHOICES)
    logprobs: bool | None = None
    top_logprobs: Literal[0] | None = None
    stream: bool | None = None
    stream_options: _StreamBody | None = None
    return_token_ids: bool = False
    include_stop_str_in_output: bool = False

    @property
    def said(self) -> list[Said]:
        return [message.said() for message in self.messages]

    @property
    def schemas(self) -> list[dict[str, object]]:
        """The tools as chat templates take them."""
        hidden = self.tool_choice == "none"
        return [] if hidden else [{"type": "function", "function": tool.function} for tool in self.tools or ()]

    @property
    def stop_strings(self) -> tuple[str, ...]:
        given = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return tuple(filter(None, given))[:_STOP_STRINGS]

    @property
    def most(self) -> int | None:
        """The maximum number of tokens of a reply."""
        return min(filter(None, (self.max_tokens, self.max_completion_tokens)), default=None)


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """One completion as the program gets it. `tokens` are the texts of its ids, if they were asked for."""

    written: WrittenReply
    completion: Completion
    tokens: Sequence[str] = ()

    @property
    def finish_reason(self) -> str:
        if self.written.calls:
            return "tool_calls"
        return "stop" if self.completion.finish_reason == "stop" else "length"


@dataclass(frozen=True, slots=True)
class AgentReply:
    """The reply to a request: its number in the attempt, the ids of its prompt, and its choices."""

    number: int
    prompt: tuple[int, ...]
    choices: tuple[AgentChoice, ...]

    @property
    def usage(self) -> dict[str, int]:
        written = sum(len(choice.completion.token_ids) for choice in self.choices)
        read = len(self.prompt)
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def read_request(body: object) -> AgentRequest:
    """Read a request. Raises DataError."""
    try:
        return AgentRequest.model_validate(body)
    except ValidationError as error:
        raise DataError(
            f"The request is not valid: {first_problem(error)}. Expected chat completions with text and functions; "
            "images, top_logprobs and other tools are not supported."
        ) from error


def completion_of(reply: AgentReply, request: AgentRequest) -> dict[str, Any]:
    """Return the body of a whole reply."""
    choices = [_choice(reply, place, request) for place in range(len(reply.choices))]
    ids = {"prompt_token_ids": list(reply.prompt)} if request.return_token_ids else {}
    return {**_head(reply, "chat.completion"), "choices": choices, "usage": reply.usage, **ids}


def stream_of(reply: AgentReply, request: AgentRequest) -> Iterator[str]:
    """Yield the events of a stream."""
    head = _head(reply, "chat.completion.chunk")
    for whole in completion_of(reply, request)["choices"]:
        delta, place = whole.pop("message"), whole["index"]
        for number, call in enumerate(delta.get("tool_calls", ())):
            call["index"] = number
        yield event({**head, "choices": [{**whole, "delta": delta, "finish_reason": None}]})
        last = {"index": place, "delta": {}, "finish_reason": whole["finish_reason"]}
        yield event({**head, "choices": [last]})
    if request.stream_options is not None and request.stream_options.include_usage:
        yield event({**head, "choices": [], "usage": reply.usage})
    yield "data: [DONE]\n\n"


def event(value: Mapping[str, Any], name: str = "") -> str:
    """Return an event of a stream."""
    line = f"event: {name}\n" if name else ""
    return f"{line}data: {json.dumps(value, ensure_ascii=False)}\n\n"


def call_id(reply: AgentReply, place: int, number: int) -> str:
    """Return the id of a call of a reply's choice."""
    return f"call_{reply.number:04d}_{place}_{number}"


def arguments_of(call: ToolCall) -> str:
    """Return the arguments of a call as JSON."""
    return json.dumps(dict(call.arguments), ensure_ascii=False)


def _head(reply: AgentReply, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{reply.number}", "object": kind, "created": int(time.time()), "model": MODEL}


def _choice(reply: AgentReply, place: int, request: AgentRequest) -> dict[str, Any]:
    choice = reply.choices[place]
    written, done = choice.written, choice.completion
    message: dict[str, Any] = {"role": "assistant", "content": None if written.calls else written.text}
    if written.thought:
        message |= {"reasoning": written.thought, "reasoning_content": written.thought}
    if written.calls:
        message["tool_calls"] = [
            {
                "id": call_id(reply, place, number),
                "type": "function",
                "function": {"name": call.name, "arguments": arguments_of(call)},
            }
            for number, call in enumerate(written.calls)
        ]
    made: dict[str, Any] = {"index": place, "message": message, "finish_reason": choice.finish_reason}
    if request.logprobs:
        rows = [
            {"token": token, "logprob": logprob, "bytes": list(token.encode()), "top_logprobs": []}
            for token, logprob in zip(choice.tokens, done.logprobs, strict=True)
        ]
        made["logprobs"] = {"content": rows, "refusal": None}
    if request.return_token_ids:
        made["token_ids"] = list(done.token_ids)
    return made


def _call(function: _FunctionBody) -> ToolCall:
    given = function.arguments
    try:
        read: object = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        read = None
    arguments = cast("dict[str, object]", read) if isinstance(read, dict) else {"arguments": given}
    return ToolCall(function.name, arguments)
