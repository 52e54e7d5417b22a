"""Calls of a server over HTTP, with retries after transient failures. Its replies are not trusted."""

from __future__ import annotations

import asyncio
import html
import json
import os
import re
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2

from evoseek.errors import ConfigError, ToolError
from evoseek.http.body import BodyError, CutBodyError, read_body
from evoseek.http.limits import RateLimitError, Retry, TransientError, seconds_of

T = TypeVar("T")

MAX_BODY = 4 * 2**20
"""Maximum bytes of a reply's body, before and after unpacking, as `read_body` counts them."""

_SHOWN = 300  # characters of a reply
_READ = 16 * 1024  # characters in which these, without white space, are searched
_LONGEST = 6  # maximum number of characters that encode one of a secret: &quot;
_CONNECT_S = 10.0
_RETRIED = frozenset({408, 409, 429})  # and every 5xx
_KEY = re.compile(r"[!-~]*")  # characters that a header can hold, without spaces
_HOST = re.compile(rb"[\w.:-]+")  # a name (international ones are encoded), an IPv4 or an IPv6 address


@dataclass(frozen=True, slots=True)
class Reply:
    """A response that is neither a transient failure nor a redirect."""

    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class Server:
    """Calls of one server, at most `concurrency` concurrently, in order of arrival. Each is retried according to
    `retry`. An attempt may take `timeout_s` seconds from connecting to the last byte (in a stream of events: from one
    event to the next).

    Transient failures are retried: no or a broken connection, no reply in time, the status 408, 409, 429 or 5xx, and
    anything that the caller reports as TransientError. Retry-After is respected. Redirects are not followed, and at
    most `MAX_BODY` bytes are read.

    A call keeps its place while it waits to be retried. Overlapping calls, queued ones included, share connections; the
    last of them closes these, so the object itself needs no closing. Use it in one event loop at a time. Proxies in the
    environment are not used. No error's text contains the api_key, even if the server repeats it.

    `setting` is the name of the setting with the server's address, for errors. Raises ConfigError if no header can hold
    the api_key.
    """

    def __init__(
        self,
        *,
        setting: str,
        api_key: str,
        timeout_s: float,
        retry: Retry,
        concurrency: int,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        _check(api_key)
        self._setting, self._api_key, self._headers = setting, api_key, headers
        self._timeout_s, self._retry, self._concurrency = timeout_s, retry, concurrency
        self._session: _Session | None = None

    async def call(self, attempt: Callable[[httpx2.AsyncClient], Awaitable[T]]) -> T:
        """Make the call when its turn comes, and return the result. Raises ToolError, whose text says why but does not
        name the server."""
        try:
            async with self._connections() as session, session.places:
                return await self._retry.run(lambda: attempt(session.client))
        except TransientError as error:
            raise ToolError(
                f"each of {self._retry.attempts} attempts failed; the last time {error}. Check the server and the "
                "network, or raise timeout_s or attempts.",
                code="server.failed",
            ) from error
        except ToolError:
            raise
        except Exception as error:  # errors of a platform for an address or a certificate are not documented
            what = f"the call failed: {self.shown(_named(error))}. Check {self._setting} and the installation."
            raise ToolError(what) from error

    async def send(self, client: httpx2.AsyncClient, method: str, url: str, **request: Any) -> Reply:
        """Send one request. Raises TransientError (or RateLimitError) for a transient failure, and ToolError."""
        async with self._response(client, method, url, request) as (response, _):
            return await self._read(response)

    async def stream(
        self, client: httpx2.AsyncClient, method: str, url: str, each: Callable[[str], T | None], **request: Any
    ) -> T | Reply:
        """Send one request whose reply is a stream of events, each within `timeout_s` of the last. Call `each` with the
        data of every event, return its first result that is not None, and close the connection. An unsuccessful reply
        is returned unchanged. Raises as `send`, TransientError if the stream ends without a result, and what `each`
        raises."""
        time, headers = asyncio.get_running_loop().time, {"Accept-Encoding": "identity"}
        async with self._response(client, method, url, {"headers": headers, **request}) as (response, timer):
            if not response.is_success:
                return await self._read(response)
            async for event in httpx2.EventSource(response, MAX_BODY):
                if (done := each(event.data)) is not None:
                    return done
                timer.reschedule(time() + self._timeout_s)
        raise TransientError("its reply ended early")

    @asynccontextmanager
    async def _response(
        self, client: httpx2.AsyncClient, method: str, url: str, request: Mapping[str, Any]
    ) -> AsyncGenerator[tuple[httpx2.Response, asyncio.Timeout]]:
        """Open a response, to read its body in the block, with the timer of `timeout_s` seconds that ends it."""
        try:
            async with asyncio.timeout(self._timeout_s) as timer, client.stream(method, url, **request) as response:
                yield response, timer
        except BodyError as error:
            raise ToolError(f"its reply {error}. Check that {self._setting} is the right address.") from error
        except CutBodyError as error:
            raise TransientError(f"its reply was cut: {error}") from error
        except httpx2.ConnectTimeout as error:
            raise TransientError("the connection was not made in time") from error
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise TransientError(f"it had not replied in {self._timeout_s:g} seconds") from error
        except httpx2.RequestError as error:
            raise TransientError(f"the connection failed: {type(error).__name__} {self.shown(error)}") from error

    async def _read(self, response: httpx2.Response) -> Reply:
        """Read a whole reply. Raises TransientError, ToolError, and the errors of `read_body`."""
        coding = response.headers.get("content-encoding", "").strip().lower()
        reply = Reply(response.status_code, await read_body(response.aiter_raw(), coding, MAX_BODY))
        if reply.status in _RETRIED or response.is_server_error:
            wait_s = seconds_of(response.headers.get("retry-after", ""))
            raise (RateLimitError if reply.status == 429 else TransientError)(self.refusal(reply), wait_s)
        if response.has_redirect_location:
            target = self.shown(_without_secrets(response.headers["location"]))
            raise ToolError(f"it redirected (status {reply.status}) to {target}. Set {self._setting} to that address.")
        return reply

    def refusal(self, reply: Reply) -> str:
        return f"it replied with status {reply.status}: {self.shown(error_message(reply.body))}"

    def shown(self, text: object) -> str:
        return redacted(text, self._api_key)

    @asynccontextmanager
    async def _connections(self) -> AsyncGenerator[_Session]:
        """Share connections with the calls that overlap with this one."""
        session = self._session = self._session or self._opened()
        session.calls += 1
        try:
            yield session
        finally:
            session.calls -= 1
            if not session.calls:
                self._session = None
                await session.client.aclose()

    def _opened(self) -> _Session:
        client = httpx2.AsyncClient(
            headers={"Accept-Encoding": "gzip", **(self._headers or {})},
            timeout=httpx2.Timeout(self._timeout_s, connect=min(self._timeout_s, _CONNECT_S), pool=None),
            limits=httpx2.Limits(),  # none: the places bound the calls
            trust_env=False,
            verify=certificates(),
        )
        return _Session(client, asyncio.Semaphore(self._concurrency))


@cache
def certificates() -> ssl.SSLContext:
    """Load the trusted authorities, once: loading takes longer than most calls."""
    return httpx2.create_ssl_context(trust_env=False)


@dataclass(slots=True)
class _Session:
    """The connections and places that overlapping calls share, and the number of these calls."""

    client: httpx2.AsyncClient
    places: asyncio.Semaphore
    calls: int = 0


def check_url(url: str, *, setting: str, example: str) -> None:
    """Raise ConfigError for an invalid server address, or one with a query or a password; `setting` is its name."""
    try:
        parsed = httpx2.URL(url)
        usable = (
            parsed.scheme in ("http", "https")
            and _HOST.fullmatch(parsed.raw_host)
            and (parsed.port is None or 0 < parsed.port < 2**16)
            and not (parsed.userinfo or parsed.query or parsed.fragment or re.search(r"\s", url))
        )
    except httpx2.InvalidURL:
        usable = False
    if not usable:
        raise ConfigError(
            f"Got {_without_secrets(url)!r} as the {setting} of a server. Expected http:// or https://, a host, "
            f"maybe a port from 1 to 65535, and a path, as in {example}; but no user, password, query or fragment "
            "(they are not shown here). Put a key into the environment variable that api_key_env names.",
            code="server.url",
        )


def key_of(variable: str, *, setting: str) -> str:
    """Return the API key in an environment variable, "" without a variable. Raises ConfigError if it is not set;
    `setting` is the name of the setting with the variable's name."""
    key = os.environ.get(variable, "") if variable else ""
    if variable and not key:
        raise ConfigError(
            f"{setting} is {variable}, but that environment variable is missing or empty. Set it "
            f"(export {variable}=...), or leave {setting} empty.",
            code="server.no_variable",
        )
    return key


def _named(error: Exception) -> str:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__} {error}"


def _without_secrets(url: str) -> str:
    """Return the part of a URL that may be shown in an error."""
    return "***" if "@" in url else re.split(r"[?#]", url)[0]


def _check(api_key: str) -> None:
    if not _KEY.fullmatch(api_key):
        raise ConfigError(
            "The API key of a server has a space, a line break or a character that is not ASCII, which no HTTP header "
            "can hold. Set the environment variable to the key and nothing else.",
            code="server.key",
        )


def json_of(body: bytes, *, secret: str) -> Any:
    """Parse a body as JSON. Raises TransientError if it is not JSON: the reply may have been cut off."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise TransientError(f"its reply is not JSON: {redacted(body, secret)}") from error


def error_message(body: bytes) -> object:
    """Return a server's error message from one of the usual places; else the whole body."""
    try:
        match json.loads(body):
            case {"error": {"message": str(message)}} | {"error": str(message)} | {"message": str(message)}:
                return message
            case _:
                return body
    except (ValueError, RecursionError):
        return body


def redacted(reply: object, secret: str) -> str:
    """Return a server's text for use in an error: its beginning, in quotation marks, without the secret, plain or
    encoded as in a URL, in JSON or in HTML."""
    text = reply[: 4 * _READ].decode(errors="replace") if isinstance(reply, bytes) else str(reply)
    if secret:
        is_cut, text = len(text) > _READ, text[:_READ]
        for spelling in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1], html.escape(secret)):
            text = text.replace(spelling, "***")
        text = text[: -_LONGEST * len(secret)] if is_cut else text  # may contain a part of the secret
    text = " ".join(text[:_READ].split())
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
