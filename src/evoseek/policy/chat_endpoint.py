"""A chat with a model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt

from evoseek.errors import ConfigError, PolicyError, ToolError
from evoseek.policy.chat_reply import error_message, quoted, text_of
from evoseek.policy.chat_waits import PassingError, back_off, seconds_of
from evoseek.policy.encoding import harmless, split_trusted, well_formed
from evoseek.types import Message

MAX_BODY = 4 * 2**20
"""Bytes of a reply's body at most, unpacked."""

_CONNECT_S = 10.0
_RETRIED = frozenset({408, 409, 429})  # and every 5xx
_BAD_REQUEST = frozenset({400, 422})
_KEY = re.compile(r"[!-~]*")  # what a header can hold, without spaces
_HOST = re.compile(rb"[\w.:-]+")  # a name (international ones are encoded), an IPv4 or an IPv6 address


class EndpointChat:
    """Implements `Chat` by POST {base_url}/chat/completions. `name` is the endpoint's name of the model.

    A call is made up to `attempts` times, each within `timeout_s` seconds from connecting to the last byte. It is made
    again where the failure may pass: no or a broken connection, no reply in time, a reply that is not JSON, the status
    408, 409, 429 or 5xx. The wait before the n-th repetition is drawn evenly from 0 to wait_s * 2**(n - 1) seconds
    (full jitter), on top of what the server asks for in Retry-After; neither is ever longer than `max_wait_s`. Every
    other failure is one at once: another status (redirects are not followed), a refusal, a filtered, cut or empty
    reply, a body longer than `MAX_BODY`.

    What is sent: the messages, `max_tokens` (by the name `max_tokens_name`), `temperature`, a seed that follows from
    `seed` and the key, and, if `structured`, a call's form; of temperature and seed not those that `omit` names. The
    server may read control strings in a message's text, so in outside text they are broken (`encoding.harmless`).

    Not more than `concurrency` calls are under way or waiting to be repeated. Connections are shared by calls that
    overlap and closed with the last of these: a chat has nothing to close. It can be used in one event loop at a time.
    Proxies that the environment names are not used.

    Raises ConfigError for a base_url that is no URL or holds a query or a password, for an api_key that no header can
    hold, and for limits that allow no call. The api_key is in no error's text, even if the server repeats it.
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
        structured: bool = True,
        max_tokens_name: str = "max_tokens",
        omit: Collection[str] = (),
        wait_s: float = 1.0,
        max_wait_s: float = 60.0,
    ) -> None:
        _check_url(base_url)
        _check(api_key, timeout_s, attempts, concurrency)
        self.name = model
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._api_key, self._timeout_s = api_key, timeout_s
        self._limit, self._temperature, self._seed = {max_tokens_name: max_tokens}, temperature, seed
        self._structured, self._omit = structured, frozenset(omit)
        self._attempts, self._concurrency = attempts, concurrency
        self._wait_s, self._max_wait_s = wait_s, max_wait_s
        self._session: _Session | None = None

    async def chat(self, messages: Sequence[Message], *, key: str, form: Mapping[str, object] | None = None) -> str:
        """The reply's text. Raises ToolError, for one that was cut ReplyError."""
        payload = self._payload(messages, key, form)
        retrying = AsyncRetrying(
            sleep=asyncio.sleep,
            stop=stop_after_attempt(self._attempts),
            wait=back_off(self._wait_s, self._max_wait_s),
            retry=retry_if_exception_type(PassingError),
            reraise=True,
        )
        try:
            async with self._connections() as client:
                return await retrying(self._attempt, client, payload)
        except PassingError as error:
            what = (
                f"each of {self._attempts} attempts failed; the last time {error}. Check the server and the network, "
                "or raise timeout_s or attempts."
            )
            raise ToolError(self._no_reply(what)) from error
        except ToolError as error:
            raise type(error)(self._no_reply(str(error))) from error
        except Exception as error:  # what a platform raises for an address or a certificate is not documented
            what = f"the call failed: {self._shown(_named(error))}. Check base_url and the installation."
            raise ToolError(self._no_reply(what)) from error

    @asynccontextmanager
    async def _connections(self) -> AsyncGenerator[httpx2.AsyncClient]:
        """The connections of the calls under way, when it is this one's turn."""
        session = self._session = self._session or self._opened()
        session.calls += 1
        try:
            async with session.free:
                yield session.client
        finally:
            session.calls -= 1
            if not session.calls:
                self._session = None
                await session.client.aclose()

    def _opened(self) -> _Session:
        client = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {self._api_key}"} if self._api_key else {},
            timeout=httpx2.Timeout(self._timeout_s, connect=min(self._timeout_s, _CONNECT_S), pool=None),
            limits=httpx2.Limits(max_connections=self._concurrency),
            trust_env=False,
        )
        return _Session(client, asyncio.Semaphore(self._concurrency))

    def _payload(self, messages: Sequence[Message], key: str, form: Mapping[str, object] | None) -> dict[str, object]:
        if any(message.tool_calls for message in messages):
            raise PolicyError("A prompt for an endpoint holds a message with tool calls, which are not sent. Use text.")
        payload: dict[str, object] = {
            "model": self.name,
            "messages": [{"role": message.role, "content": _sent(message.content)} for message in messages],
            **self._limit,
            "temperature": self._temperature,
            "seed": random.Random(f"{self._seed}/chat/{key}").getrandbits(31),
        }
        if form is not None and self._structured:
            schema = {"name": "reply", "schema": dict(form), "strict": True}
            payload["response_format"] = {"type": "json_schema", "json_schema": schema}
        return {name: value for name, value in payload.items() if name not in self._omit}

    async def _attempt(self, client: httpx2.AsyncClient, payload: Mapping[str, object]) -> str:
        """One call. Raises PassingError for a failure that may pass; every error says what is wrong and no more."""
        try:
            async with asyncio.timeout(self._timeout_s), client.stream("POST", self._url, json=payload) as response:
                body = await _read(response)
        except httpx2.ConnectTimeout as error:
            raise PassingError("it could not be connected to in time") from error
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise PassingError(f"it had not replied in {self._timeout_s:g} seconds") from error
        except httpx2.RequestError as error:
            raise PassingError(f"the connection failed: {type(error).__name__} {self._shown(error)}") from error
        if response.is_success:
            return text_of(body, secret=self._api_key)
        what = f"it replied with status {response.status_code} and said {self._shown(error_message(body))}"
        if response.status_code in _RETRIED or response.is_server_error:
            raise PassingError(what, min(seconds_of(response.headers.get("retry-after", "")), self._max_wait_s))
        if response.has_redirect_location:
            target = self._shown(_without_secrets(response.headers["location"]))
            raise ToolError(f"it sent us on (status {response.status_code}) to {target}. Set base_url to that place.")
        what += ". It is not asked again: correct base_url, the model's name, the key or the prompt."
        if response.status_code in _BAD_REQUEST:
            what += (
                " If it names a parameter that it does not take: structured=false sends no response_format, "
                'omit=["temperature", "seed"] neither of the two, and max_tokens_name=max_completion_tokens the limit '
                "by that name."
            )
        raise ToolError(what)

    def _shown(self, said: object) -> str:
        return quoted(said, self._api_key)

    def _no_reply(self, why: str) -> str:
        return f"There is no reply of the model {self.name!r} at {self._url}: {why}"


@dataclass(slots=True)
class _Session:
    """What calls that overlap share, and how many they are."""

    client: httpx2.AsyncClient
    free: asyncio.Semaphore
    calls: int = 0


def _sent(content: str) -> str:
    """A message's text for a reader that knows no marks."""
    pieces = (piece if is_template else harmless(piece) for is_template, piece in split_trusted(content))
    return well_formed("".join(pieces))


async def _read(response: httpx2.Response) -> bytes:
    """The body, unpacked piece by piece so that a small one cannot become a huge one."""
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > MAX_BODY:
            raise ToolError(
                f"its reply is longer than {MAX_BODY} bytes. Check that base_url is that of a chat endpoint."
            )
    return bytes(body)


def _named(error: Exception) -> str:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__} {error}"


def _without_secrets(url: str) -> str:
    """The part of what should be a URL that may be shown."""
    return "***" if "@" in url else re.split(r"[?#]", url)[0]


def _check_url(base_url: str) -> None:
    try:
        url = httpx2.URL(base_url)
        usable = (
            url.scheme in ("http", "https")
            and _HOST.fullmatch(url.raw_host)
            and (url.port is None or 0 < url.port < 2**16)
            and not (url.userinfo or url.query or url.fragment or re.search(r"\s", base_url))
        )
    except httpx2.InvalidURL:
        usable = False
    if not usable:
        raise ConfigError(
            f"Got {_without_secrets(base_url)!r} as the base_url of an endpoint. Expected http:// or https://, a host, "
            "maybe a port from 1 to 65535, and the path before /chat/completions, as in http://localhost:8000/v1; but "
            "no user, password, query or fragment (which are not shown here): a key goes into the environment variable "
            "that api_key_env names."
        )


def _check(api_key: str, timeout_s: float, attempts: int, concurrency: int) -> None:
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
