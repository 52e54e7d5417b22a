"""Requests and replies in the form of OpenAI's chat completions, with an object `evoseek` beside what clients know.

    POST /v1/chat/completions {"model": "...", "messages": [{"role": "user", "content": "who ...?"}], "stream": false}

The last message, the user's, is the question. Messages of user and assistant before it are the conversation; those of
the system are not given to the model, which has its own prompt, and are named in `evoseek.ignored`. Of a long
conversation the last messages are read; `evoseek.dropped_messages` says how many were left out. Sampling parameters
have no effect: answers are greedy. A whole reply holds in `evoseek` what `evoseek ask --json` prints. In a stream that
comes with the last chunk, and before it each event in a chunk of its own:

    {"event": "turn", "text": "..."}                                      what the model wrote
    {"event": "call", "tool": "search", "arguments": {...}}               a call that it made
    {"event": "found", "tool": "search", "arguments": {...}, "passages": [{"id", "label", "text", "file", ...}]}
    {"event": "answer", "answer": "...", "supported": true, "support": [{"id", "label", "text", "file", ...}], ...}

A passage whose file the server has also has a `link` to it, relative to the server's address.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evoseek.answer import Answered
from evoseek.errors import DataError
from evoseek.eval.support import NOT_FOUND
from evoseek.policy.encoding import well_formed
from evoseek.report.answers import citations
from evoseek.serve.asking import Asked
from evoseek.serve.connection import error_body, status_of
from evoseek.types import Action, Message, StopReason, ToolResult

MAX_MESSAGES, MAX_QUESTION = 256, 20_000
FILES = "v1/files"
_UNLINKED = (".jsonl", ".mbox", ".gz")  # which hold many documents, or none that a browser opens
_PAUSE_S = 10.0
_UNSUPPORTED = "(No passage that was found supports this.)"


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True)  # "yes" is no true, and true is no number


class _Text(_Strict):
    type: Literal["text"]
    text: str


class _Said(_Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_Text] | None = None

    @property
    def text(self) -> str:
        content = self.content or ""
        return well_formed(content if isinstance(content, str) else "\n".join(part.text for part in content)).strip()


class _StreamOptions(_Strict):
    include_usage: bool | None = None


class _Request(_Strict):
    model: str
    messages: list[_Said] = Field(min_length=1)
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: int | None = Field(default=None, ge=1, le=1)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What is asked: the question, the conversation before it, and how the reply is wanted. `cut` is the number of
    earlier messages that are left out because there are more than MAX_MESSAGES."""

    model: str
    question: str
    history: tuple[Message, ...]
    cut: int
    ignored: tuple[str, ...]
    streams: bool
    tells_usage: bool


def read_request(body: bytes) -> ChatRequest:
    """The request in a body. Raises DataError for what is none."""
    try:
        request = _Request.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the body"
        raise DataError(f"{place}: {first['msg']}. Expected a chat completion's request in JSON.") from error
    *before, last = request.messages
    if last.role != "user" or not last.text:
        raise DataError("The last message is not a user's text. Expected the question there.")
    if len(last.text) > MAX_QUESTION:
        raise DataError(f"The question has {len(last.text):,} characters. At most {MAX_QUESTION:,} are read.")
    said = [Message(one.role, one.text) for one in before if one.role in ("user", "assistant") and one.text]
    kept = _last_exchanges(said)
    return ChatRequest(
        request.model,
        last.text,
        kept,
        len(said) - len(kept),
        tuple(sorted({said.role for said in before if said.role in ("system", "developer")})),
        bool(request.stream),
        bool(request.stream_options and request.stream_options.include_usage),
    )


def _last_exchanges(said: Sequence[Message]) -> tuple[Message, ...]:
    """The last messages of a long conversation, from one of the user's."""
    if len(said) < MAX_MESSAGES:
        return tuple(said)
    kept = said[len(said) - MAX_MESSAGES + 1 :]
    first = next((place for place, message in enumerate(kept) if message.role == "user"), 0)
    return tuple(kept[first:])


def answer_object(answered: Answered, request: ChatRequest, files: Collection[str]) -> dict[str, object]:
    """The object `evoseek` of an answer."""
    answer: dict[str, Any] = answered.json
    own = {"dropped_messages": answered.dropped + request.cut, "ignored": list(request.ignored)}
    return {**answer, "support": linked(answer["support"], files), **own}


def linked(passages: Iterable[Mapping[str, object]], files: Collection[str]) -> list[dict[str, object]]:
    """Citations with a `link` to the file, if it is one of `files`, at the page if there is one: an address relative to
    the server's."""
    return [{**passage, **_link(str(passage.get("file")), passage.get("page"), files)} for passage in passages]


def _link(file: str, page: object, files: Collection[str]) -> dict[str, object]:
    if file not in files or PurePath(file).suffix.lower() in _UNLINKED:
        return {}
    return {"link": f"{FILES}/{quote(file)}" + (f"#page={page}" if page else "")}


def completion(
    asked: Asked, answered: Answered, request: ChatRequest, files: Collection[str] = ()
) -> dict[str, object]:
    """A whole reply, with links to those of its documents that are among `files`."""
    message = {"role": "assistant", "content": _content(answered), "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": _finish(answered), "logprobs": None}
    head = _head(asked.id, "chat.completion", request.model)
    return {**head, "choices": [choice], "usage": _usage(answered), "evoseek": answer_object(answered, request, files)}


async def stream(asked: Asked, request: ChatRequest, files: Collection[str] = ()) -> AsyncIterator[str]:
    """The reply as server-sent events. Whatever ends the iteration ends the rollout."""
    head = _head(asked.id, "chat.completion.chunk", request.model)
    try:
        yield _sent({**head, "choices": [_delta({"role": "assistant", "content": ""})]})
        async for record in asked.events(_PAUSE_S):
            if record is None:
                yield ": still at work\n\n"  # a comment, which clients skip: it shows whether there still is one
            else:
                for event in _events(record, files):
                    yield _sent({**head, "choices": [_delta({})], "evoseek": event})
        answered = await asked.answered()
        if failure := answered.trajectory.failure:
            yield _sent(error_body(502, f"The question could not be answered: {failure}"))
            return
        yield _sent({**head, "choices": [_delta({"content": _content(answered)})]})
        last = {"event": "answer", **answer_object(answered, request, files)}
        yield _sent({**head, "choices": [_delta({}, _finish(answered))], "evoseek": last})
        if request.tells_usage:
            yield _sent({**head, "choices": [], "usage": _usage(answered)})
        yield "data: [DONE]\n\n"
    except Exception as error:  # a model or a tool of any kind; the client gets it before the stream ends
        yield _sent(error_body(*status_of(error)))
    finally:
        asked.task.cancel()


def _head(id: str, kind: str, model: str) -> dict[str, object]:
    return {"id": id, "object": kind, "created": int(time.time()), "model": model}


def _delta(delta: Mapping[str, object], finish: str | None = None) -> dict[str, object]:
    return {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}


def _sent(value: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def _events(record: Action | ToolResult, files: Collection[str]) -> Iterator[dict[str, object]]:
    if isinstance(record, Action):
        yield {"event": "turn", "text": record.text}
        for call in record.tool_calls:
            yield {"event": "call", "tool": call.name, "arguments": dict(call.arguments)}
    else:
        call, passages = record.call, linked(citations(record.passages), files)
        yield {"event": "found", "tool": call.name, "arguments": dict(call.arguments), "passages": passages}


def _content(answered: Answered) -> str:
    """The reply's text. The mark of an unsupported answer is in it, for clients that read nothing else."""
    if not answered.answer:
        return NOT_FOUND
    return answered.answer if answered.support.is_given else f"{answered.answer}\n\n{_UNSUPPORTED}"


def _finish(answered: Answered) -> str:
    return "length" if answered.trajectory.stop_reason is StopReason.MAX_TOKENS else "stop"


def _usage(answered: Answered) -> dict[str, int] | None:
    """Tokens that the policy was given and wrote; None for a model whose tokens are unknown."""
    trajectory = answered.trajectory
    if not trajectory.segments:
        return None
    total, written = len(trajectory.token_ids), trajectory.num_action_tokens
    return {"prompt_tokens": total - written, "completion_tokens": written, "total_tokens": total}
