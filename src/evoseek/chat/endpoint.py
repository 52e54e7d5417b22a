"""A chat with a model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import httpx2

from evoseek.errors import CutReplyError, EmptyReplyError, PolicyError, ToolError
from evoseek.http.limits import Retry, TransientError
from evoseek.http.server import Reply, Server, check_url, error_message, json_of, redacted
from evoseek.renderers.encoding import harmless, split_trusted
from evoseek.renderers.tags import with_closing_tag
from evoseek.text.scripts import well_formed
from evoseek.types import CountedText, Message

_BAD_REQUEST = frozenset({400, 422})

_NO = r"unsupported|not support|unrecogni[sz]ed|unknown|unexpected|not permitted|not allowed|forbidden|invalid param"
_REFUSALS = {
    "max_tokens": r"max_completion_tokens",
    "response_format": r"response_format|json_schema",
    **{name: rf"(?s)(?=.*\b{name}\b).*({_NO})" for name in ("temperature", "seed", "stop")},
}
"""Matches an error message that refuses a parameter."""


class EndpointChat:
    """A `Chat` by POST {base_url}/chat/completions. `name` is the endpoint's name of the model.

    Calls are retried as in `Server`; a reply that is not JSON is transient. Any other status, a refusal, and a
    filtered, cut or empty reply are final.

    A call sends the messages, `max_tokens`, `temperature`, a seed derived from `seed` and the key, and a form and stop
    strings, except those in `omit`. If a server refuses one of the last four, asks for `max_completion_tokens`, or ends
    a model's reasoning at a stop string, this and later calls are adapted, with a warning. Control strings in outside
    text are broken (`encoding.harmless`), as the server may read them.

    Raises ConfigError for a base_url that is not a URL or holds a query or a password, and for an api_key that no
    header can hold. No error repeats the api_key.
    """

    is_local = False

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str,
        max_tokens: int,
        temperature: float,
        timeout_s: float,
        concurrency: int,
        seed: int,
        attempts: int = 4,
        omit: Collection[str] = (),
        wait_s: float = 1.0,
        max_wait_s: float = 60.0,
    ) -> None:
        check_url(base_url, setting="base_url", example="http://localhost:8000/v1")
        self.name = model
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._api_key = api_key
        self._max_tokens, self._temperature, self._seed = max_tokens, temperature, seed
        self._omit = frozenset(omit)
        self._server = Server(
            setting="base_url",
            api_key=api_key,
            timeout_s=timeout_s,
            retry=Retry(attempts, wait_s, max_wait_s),
            concurrency=concurrency,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
        )

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        key: str,
        form: Mapping[str, object] | None = None,
        stop: Sequence[str] = (),
    ) -> str:
        """Return the reply's text, as `text_of` gives it. Raises ToolError: CutReplyError for a cut reply,
        EmptyReplyError for an empty one."""
        payload = self._payload(messages, key, form, stop)
        try:
            return await self._server.call(lambda client: self._attempt(client, payload))
        except ToolError as error:
            what = f"There is no reply of the model {self.name!r} at {self._url}: {error}"
            cut = (error.text,) if isinstance(error, CutReplyError) else ()
            raise type(error)(what, *cut, code=error.code) from error

    def _payload(
        self, messages: Sequence[Message], key: str, form: Mapping[str, object] | None, stop: Sequence[str]
    ) -> dict[str, object]:
        if any(message.tool_calls for message in messages):
            raise PolicyError(
                "A prompt for an endpoint holds a message with tool calls, which cannot be sent. Use text.",
                code="endpoint.tool_calls",
            )
        payload: dict[str, object] = {
            "model": self.name,
            "messages": [{"role": message.role, "content": _sent(message.content)} for message in messages],
            "max_tokens": self._max_tokens,
            "temperature": self._temperature,
            "seed": random.Random(f"{self._seed}/chat/{key}").getrandbits(31),
        }
        if form is not None:
            schema = {"name": "reply", "schema": dict(form), "strict": True}
            payload["response_format"] = {"type": "json_schema", "json_schema": schema}
        if stop:
            payload["stop"] = list(stop)
        return payload

    async def _attempt(self, client: httpx2.AsyncClient, payload: Mapping[str, object]) -> str:
        omit = self._omit
        while True:
            sent = _without(payload, omit)
            reply = await self._server.send(client, "POST", self._url, json=sent)
            refused = _refused(reply) & sent.keys()
            if reply.is_success and not refused:
                break
            if not refused:
                raise ToolError(
                    f"{self._server.refusal(reply)}. This call is not retried: correct base_url, the model's name, the "
                    "key or the prompt.",
                    code="endpoint.refused",
                )
            omit |= refused
        if new := omit - self._omit:
            self._omit |= omit
            warnings.warn(
                f"The model {self.name!r} at {self._url} does not accept {', '.join(sorted(new))}, so further calls "
                "leave this out (max_completion_tokens replaces max_tokens).",
                stacklevel=2,
            )
        return text_of(reply.body, secret=self._api_key, stop=cast("Sequence[str]", sent.get("stop", ())))


def _without(payload: Mapping[str, object], omit: Collection[str]) -> dict[str, object]:
    """Return a payload without these parameters; the limit of tokens has two names."""
    sent = {name: value for name, value in payload.items() if name not in omit}
    return sent if "max_tokens" in sent else {**sent, "max_completion_tokens": payload["max_tokens"]}


def _refused(reply: Reply) -> frozenset[str]:
    """Return the parameters that a server's error message refuses; `stop` if a reply ended within its reasoning."""
    if reply.is_success:
        return frozenset({"stop"} if _is_thought(reply.body) else ())
    if reply.status not in _BAD_REQUEST:
        return frozenset()
    found = error_message(reply.body)
    words = found.decode(errors="replace") if isinstance(found, bytes) else str(found)
    return frozenset(name for name, pattern in _REFUSALS.items() if re.search(pattern, words, re.IGNORECASE))


def _sent(content: str) -> str:
    """Return a message's text without the marks of template text."""
    pieces = (piece if is_template else harmless(piece) for is_template, piece in split_trusted(content))
    return well_formed("".join(pieces))


# Fields that a server may fill instead of content; a reply with them is not empty.
_REASONING = ("reasoning_content", "reasoning")
_OTHER_TEXT = ("tool_calls", *_REASONING)

# The finish_reason of servers by its beginning: none, "stop", "eos_token", "end_turn", "STOP", "COMPLETE", ...
_ENDED = re.compile(r"(finish_reason_)?(stop|eos|end|complete|finished|done|\Z)", re.IGNORECASE)
_CUT = re.compile(r"length|max_|limit|context_window", re.IGNORECASE)
_FILTERED = re.compile(r"filter|safety|blocklist|prohibited", re.IGNORECASE)


def text_of(body: bytes, *, secret: str, stop: Sequence[str] = ()) -> CountedText:
    """Return the text of a reply's first choice, with the closing tag of `stop` that the server cut off, and the
    numbers of tokens (0: unknown). Raises TransientError for a body that is not JSON, CutReplyError for a cut reply,
    EmptyReplyError for one without text, else ToolError."""
    found = json_of(body, secret=secret)
    message, reason = _first_choice(found)
    text = _text(message.get("content"))
    if isinstance(refusal := message.get("refusal"), str) and refusal:
        raise ToolError(f"the model refused: {redacted(refusal, secret)}. Change the prompt, or the model.")
    if _FILTERED.search(reason):
        raise ToolError("the server's content filter blocked it. Change the prompt, or the endpoint.")
    if not _ENDED.match(reason) and _CUT.search(reason):
        what = "it was cut at its limit of tokens. Raise max_tokens, or ask for less in the prompt."
        raise CutReplyError(what, well_formed(text or ""))
    if text is not None and text.strip() and _ENDED.match(reason):
        return CountedText.of(with_closing_tag(well_formed(text), stop), _tokens(found))
    if text is not None and _ENDED.match(reason) and not any(message.get(name) for name in _OTHER_TEXT):
        raise EmptyReplyError(
            f"it is empty: {redacted(body, secret)}. Ask for a reply in the prompt, or take another model."
        )
    raise ToolError(
        "expected a first choice with the finish_reason 'stop' and a message with text as content, but got "
        f"{redacted(body, secret)}. Check that base_url belongs to a chat endpoint, and that the model "
        "replies with text."
    )


def _first_choice(found: Any) -> tuple[Mapping[str, Any], str]:
    """Return the message of a reply's first choice, and why it ended: "" if unknown, "?" without a choice."""
    match found:
        case {"choices": [{"message": {**message}, **choice}, *_]}:
            reason: object = choice.get("finish_reason")
            return message, str(reason or "") if isinstance(reason, str | None) else "?"
        case _:
            return {}, "?"


def _text(content: object) -> str | None:
    """Return the text of a message's content, whole or in parts; None without any text."""
    match content:
        case None | str():
            return content or ""
        case [*parts]:
            texts = [part["text"] for part in parts if _is_text(part)]
            return "".join(texts) if texts or not parts else None
        case _:
            return None


def _is_text(part: Any) -> bool:
    match part:
        case {"text": str(), **others}:
            return others.get("type", "text") in ("text", "output_text")
        case _:
            return False


def _is_thought(body: bytes) -> bool:
    """Return whether a reply ended within its model's reasoning, apart from its content or in it."""
    try:
        message, _ = _first_choice(json_of(body, secret=""))
    except TransientError:
        return False
    text = (_text(message.get("content")) or "").lstrip()
    is_open = text.startswith("<think>") and "</think>" not in text
    return is_open or (not text and any(message.get(name) for name in _REASONING))


def _tokens(found: Any) -> tuple[int, int]:
    """Return the server's counts of the tokens of prompt and reply."""
    match found:
        case {"usage": {"prompt_tokens": int(given), "completion_tokens": int(written)}}:
            return given, written
        case _:
            return 0, 0
