"""A chat with a model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exception, wait_random_exponential
from tenacity.wait import wait_base

from evoseek.errors import ConfigError, PolicyError, ReplyError, ToolError
from evoseek.policy.encoding import plain, well_formed
from evoseek.types import Message

MAX_BODY = 4 * 2**20
"""Bytes of a reply's body at most, unpacked."""

_CONNECT_S = 10.0
_RETRIED = frozenset({408, 409, 429})  # and every 5xx
_SHOWN = 300  # characters of what a server says
_KEY = re.compile(r"[!-~]*")  # what a header can hold, without spaces


class EndpointChat:
    """Implements `Chat` by POST {base_url}/chat/completions. `name` is the endpoint's name of the model.

    A call is made up to `attempts` times, each within `timeout_s` seconds from connecting to the last byte. It is made
    again where the failure may pass: no or a broken connection, no reply in time, a reply that is not JSON, the status
    408, 409, 429 or 5xx. The wait before the n-th repetition is drawn evenly from 0 to wait_s * 2**(n - 1) seconds
    (full jitter), on top of what the server asks for in Retry-After; neither is ever longer than `max_wait_s`. Every
    other failure is one at once: another status (redirects are not followed), a refusal, a filtered, cut or empty
    reply, a body longer than `MAX_BODY`.

    Not more than `concurrency` calls are under way or waiting to be repeated. The seed that is sent follows from
    `seed` and the key. Proxies that the environment names are not used. A chat can be used in one event loop at a time;
    connections are kept open until `aclose`, or as long as their loop runs.

    Raises ConfigError for a base_url that is no URL or holds a password, for an api_key that no header can hold, and
    for limits that allow no call. The api_key is in no error's text, even if the server repeats it.
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
        attempts: int,
        concurrency: int,
        seed: int,
        wait_s: float = 1.0,
        max_wait_s: float = 60.0,
    ) -> None:
        _check(base_url, api_key, timeout_s, attempts, concurrency)
        self.name = model
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._api_key, self._timeout_s = api_key, timeout_s
        self._max_tokens, self._temperature, self._seed = max_tokens, temperature, seed
        self._attempts, self._concurrency = attempts, concurrency
        self._wait_s, self._max_wait_s = wait_s, max_wait_s
        self._session: _Session | None = None

    async def chat(self, messages: Sequence[Message], *, key: str, form: Mapping[str, object] | None = None) -> str:
        """The reply's text. Raises ToolError, for one that was cut ReplyError."""
        payload = self._payload(messages, key, form)
        session = self._open()
        retrying = AsyncRetrying(
            sleep=asyncio.sleep,
            stop=stop_after_attempt(self._attempts),
            wait=back_off(self._wait_s, self._max_wait_s),
            retry=retry_if_exception_type(_PassingError),
            reraise=True,
        )
        async with session.free:
            try:
                return await retrying(self._attempt, session.client, payload)
            except _PassingError as error:
                raise self._failed(
                    f"each of {self._attempts} attempts failed; the last time {error}. Check the server and the "
                    "network, or raise timeout_s or attempts."
                ) from error

    async def aclose(self) -> None:
        """Close the connections. The chat opens others if it is used again."""
        session, self._session = self._session, None
        if session is not None and session.loop is asyncio.get_running_loop():
            await session.client.aclose()

    def _open(self) -> _Session:
        """The session of the running loop: neither connections nor semaphores outlive theirs."""
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.loop is not loop:
            client = httpx2.AsyncClient(
                headers={"Authorization": f"Bearer {self._api_key}"} if self._api_key else {},
                timeout=httpx2.Timeout(self._timeout_s, connect=min(self._timeout_s, _CONNECT_S), pool=None),
                limits=httpx2.Limits(max_connections=self._concurrency),
                trust_env=False,
            )
            self._session = _Session(loop, client, asyncio.Semaphore(self._concurrency))
        return self._session

    def _payload(self, messages: Sequence[Message], key: str, form: Mapping[str, object] | None) -> dict[str, object]:
        """What is sent. Marks are removed, for this reader is no tokenizer."""
        if any(message.tool_calls for message in messages):
            raise PolicyError("A prompt for an endpoint holds a message with tool calls, which are not sent. Use text.")
        payload: dict[str, object] = {
            "model": self.name,
            "messages": [
                {"role": message.role, "content": well_formed(plain(message.content))} for message in messages
            ],
            "max_tokens": self._max_tokens,
            "temperature": self._temperature,
            "seed": random.Random(f"{self._seed}/chat/{key}").getrandbits(31),
        }
        if form is not None:
            schema = {"name": "reply", "schema": dict(form), "strict": True}
            payload["response_format"] = {"type": "json_schema", "json_schema": schema}
        return payload

    async def _attempt(self, client: httpx2.AsyncClient, payload: Mapping[str, object]) -> str:
        """One call. Raises _PassingError for a failure that may pass, else ToolError."""
        try:
            async with asyncio.timeout(self._timeout_s), client.stream("POST", self._url, json=payload) as response:
                body = await self._read(response)
        except httpx2.ConnectTimeout as error:
            raise _PassingError("it could not be connected to in time") from error
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise _PassingError(f"it had not replied in {self._timeout_s:g} seconds") from error
        except httpx2.RequestError as error:
            raise _PassingError(f"the connection failed: {type(error).__name__} {self._shown(error)}") from error
        if response.is_success:
            return self._reply(body)
        what = f"it replied with status {response.status_code} and said {self._shown(_message(body))}"
        if response.status_code in _RETRIED or response.is_server_error:
            raise _PassingError(what, self._retry_after(response))
        if response.has_redirect_location:
            target = self._shown(response.headers["location"])
            raise self._failed(
                f"it sent us on (status {response.status_code}) to {target}. Set base_url to that place."
            )
        raise self._failed(f"{what}. It is not asked again: correct base_url, the model's name, the key or the prompt.")

    async def _read(self, response: httpx2.Response) -> bytes:
        """The body, unpacked piece by piece so that a small one cannot become a huge one."""
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > MAX_BODY:
                raise self._failed(
                    f"its reply is longer than {MAX_BODY} bytes. Check that base_url is that of a chat endpoint."
                )
        return bytes(body)

    def _reply(self, body: bytes) -> str:
        """The text in the body of a success: of the first choice, if the model came to its end."""
        try:
            reply: Any = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise _PassingError(f"it replied with what is not JSON: {self._shown(body)}") from error
        match reply:
            case {"choices": [{"message": {"refusal": str(refusal)}}, *_]} if refusal:
                raise self._failed(f"the model refused: {self._shown(refusal)}. Change the prompt, or the model.")
            case {"choices": [{"finish_reason": "length"}, *_]}:
                what = f"it was cut at {self._max_tokens} tokens. Raise max_tokens, or ask for less in the prompt."
                raise ReplyError(str(self._failed(what)))
            case {"choices": [{"finish_reason": "content_filter"}, *_]}:
                raise self._failed("the server's content filter held it back. Change the prompt, or the endpoint.")
            case {"choices": [{"finish_reason": "stop", "message": {"content": str(content)}}, *_]} if content.strip():
                return well_formed(content)
            case _:
                raise self._failed(
                    "expected a first choice with the finish_reason 'stop' and a message with text as content, but "
                    f"got {self._shown(body)}. Check that base_url is that of a chat endpoint, and model the name of "
                    "a model that replies with text."
                )

    def _retry_after(self, response: httpx2.Response) -> float:
        return min(seconds_of(response.headers.get("retry-after", "")), self._max_wait_s)

    def _shown(self, said: object) -> str:
        """What a server says, for an error's text: quoted, without the key, and the beginning only."""
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        if self._api_key:
            text = text.replace(self._api_key, "***")
        text = " ".join(text.split())
        return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")

    def _failed(self, what: str) -> ToolError:
        return ToolError(f"There is no reply of the model {self.name!r} at {self._url}: {what}")


@dataclass(frozen=True, slots=True)
class _Session:
    """What belongs to one event loop."""

    loop: asyncio.AbstractEventLoop
    client: httpx2.AsyncClient
    free: asyncio.Semaphore


class _PassingError(Exception):
    """A failure that may pass; the server asks to be left alone for `wait_s` seconds."""

    def __init__(self, what: str, wait_s: float = 0.0) -> None:
        super().__init__(what)
        self.wait_s = wait_s


def back_off(wait_s: float, max_wait_s: float) -> wait_base:
    """What to wait before the n-th repetition: 0 to wait_s * 2**(n - 1) seconds, and what the server asks for."""
    return wait_exception(_asked_wait) + wait_random_exponential(wait_s, max_wait_s)


def _asked_wait(error: BaseException) -> float:
    return error.wait_s if isinstance(error, _PassingError) else 0.0


def seconds_of(retry_after: str) -> float:
    """The seconds that a Retry-After header means (RFC 9110, 10.2.3: a number, or a date); 0 if it means nothing."""
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", retry_after.strip()):
        return float(retry_after)
    try:
        when = parsedate_to_datetime(retry_after)
        wait = when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)
    except (ValueError, OverflowError):
        return 0.0
    return max(wait.total_seconds(), 0.0)


def _message(body: bytes) -> object:
    """A server's own words for an error, where they are in one of the usual places; else all of the body."""
    try:
        match json.loads(body):
            case {"error": {"message": str(message)}} | {"error": str(message)} | {"message": str(message)}:
                return message
            case _:
                return body
    except (ValueError, RecursionError):
        return body


def _check(base_url: str, api_key: str, timeout_s: float, attempts: int, concurrency: int) -> None:
    try:
        url = httpx2.URL(base_url)
        usable = url.scheme in ("http", "https") and url.host and not (url.userinfo or url.query or url.fragment)
    except httpx2.InvalidURL:
        usable = False
    if not usable:
        shown = "a URL with a user or password" if "@" in base_url else repr(base_url)
        raise ConfigError(
            f"Got {shown} as the base_url of an endpoint. Expected http:// or https://, a host, and the path before "
            "/chat/completions, as in http://localhost:8000/v1; a key goes into the environment variable that "
            "api_key_env names."
        )
    if not _KEY.fullmatch(api_key):
        raise ConfigError(
            "The API key of the endpoint has a space, a line break or a character that is not ASCII, which no HTTP "
            "header can hold. Set the environment variable to the key and nothing else."
        )
    if min(attempts, concurrency) < 1 or timeout_s <= 0:
        raise ConfigError(
            f"An endpoint cannot be called {attempts} times, {concurrency} at once, for {timeout_s} seconds. Expected "
            "at least one attempt and one at once, and a time above 0."
        )
