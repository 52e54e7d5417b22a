"""The connections of every server: pages, errors, limits of bodies, clients that leave, stopping, and access by keys
and the origin of requests."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from ipaddress import ip_address
from math import ceil
from pathlib import Path
from typing import Any

import h11
import uvicorn
from aiolimiter import AsyncLimiter
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from evoseek.errors import ConfigError, DataError, EvoseekError
from evoseek.serve.keys import EVERYBODY, IN_SCOPE, Key, find_key, is_loopback

_LOG = logging.getLogger(__name__)
_PAGE = Path(__file__).parent / "page"
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_CLOSING_S = 5  # seconds for sending the errors of cancelled answers
_REQUEST_S = 30  # maximum time for sending a request
_REPLY_S = 60  # maximum time without accepting anything of a reply


class BusyError(EvoseekError):
    """Too many requests are waiting."""


class StoppedError(EvoseekError):
    """The server was stopped before an answer was ready."""

    def __init__(self) -> None:
        super().__init__("The server was stopped before the answer was ready. Ask again when it is back.")


def page_of(name: str) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint for a file of a page, which loads nothing from elsewhere and runs no inline script."""

    async def page(request: Request) -> Response:
        return FileResponse(_PAGE / name, headers=_PAGE_HEADERS)

    return page


def error_body(status: int, message: str) -> dict[str, object]:
    """Return the JSON values of an error, for clients of OpenAI's API."""
    type = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": type, "param": None, "code": None}}


def error_reply(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error as a response."""
    return JSONResponse(error_body(status, message), status, headers)


def status_of(error: Exception) -> tuple[int, str]:
    """Return the status and the text for a rollout's error; log errors other than EvoseekError."""
    if not isinstance(error, EvoseekError):
        what = f"The answer failed: {type(error).__name__}: {error}"
        _LOG.error(what)
        return 500, what
    statuses = {BusyError: 429, StoppedError: 503, DataError: 400}
    return next((status for kind, status in statuses.items() if isinstance(error, kind)), 502), str(error)


async def refused(request: Request, error: Any) -> Response:
    """Reply with an HTTPException."""
    return error_reply(error.status_code, error.detail, error.headers)


class CancelOnDisconnect:
    """An ASGI application around another one. A POST with a body of more than `max_body` bytes gets 413; if the client
    leaves before the reply, its request is cancelled."""

    def __init__(self, app: ASGIApp, *, max_body: int) -> None:
        self._app, self._max_body = app, max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return await self._app(scope, receive, send)
        body, has_more = bytearray(), True
        while has_more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            has_more = message.get("more_body", False)
            if len(body) > self._max_body:
                text = f"The body has more than {self._max_body:,} bytes. Send a shorter one."
                return await error_reply(413, text)(scope, receive, send)
        return await self._answer(scope, [bytes(body)], receive, send)

    async def _answer(self, scope: Scope, unread: list[bytes], receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_disconnected(receive))

        async def replay() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            await asyncio.shield(gone)
            return {"type": "http.disconnect"}

        answering = asyncio.ensure_future(self._app(scope, replay, send))
        try:
            await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
        finally:
            gone.cancel()
            answering.cancel()
            await asyncio.gather(gone, answering, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class TimedConnection(H11Protocol):
    """A client's connection, closed if a request is not complete within `_REQUEST_S` seconds from its first byte (or
    from the connection), or if nothing of a reply is accepted for `_REPLY_S` seconds. An upload that the application
    takes is closed only if nothing of it comes for `_REQUEST_S` seconds. After the first request uvicorn closes an idle
    connection in 5 seconds; h11 refuses headers of more than 64 KiB."""

    _request: asyncio.TimerHandle | None = None
    _reply: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._watch_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_request()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in filter(None, (self._request, self._reply)):
            timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reply = self.loop.call_later(_REPLY_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reply is not None:
            self._reply.cancel()

    @property
    def _is_upload(self) -> bool:
        cycle: Any = self.cycle  # None before the first request
        return cycle is not None and cycle.scope["method"] == "PUT" and not cycle.response_complete

    def _watch_request(self) -> None:
        """Start the timer of an incomplete request, or stop it for a complete one."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            if self._request is not None:
                self._request.cancel()
            self._request = None
        elif self._request is None or self._is_upload:
            if self._request is not None:
                self._request.cancel()
            self._request = self.loop.call_later(_REQUEST_S, self.transport.abort)


class StoppableServer(uvicorn.Server):
    """A server that, when stopped, accepts no more and finishes pending answers for at most `drain_s` seconds. Then
    `end` is called in its loop to cancel the rest; without `end`, connections are closed."""

    def __init__(self, app: ASGIApp, *, drain_s: int, end: Callable[[], None] | None = None) -> None:
        self._drain_s, self._end = drain_s, end
        limit_s = drain_s + (_CLOSING_S if end else 0)
        super().__init__(
            uvicorn.Config(
                app,
                http=TimedConnection,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=limit_s,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        timer = asyncio.get_running_loop().call_later(self._drain_s, self._end or (lambda: None))
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()


def listen(server: StoppableServer, host: str, port: int, *, started: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C, then end as a `StoppableServer`. `started` is called with the address. Raises
    ConfigError if it is not available."""

    def stop(number: int, frame: object) -> None:
        server.should_exit = True

    with _bound(host, port) as bound:
        for number in (signal.SIGTERM, signal.SIGINT):  # before uvicorn handles them, and when it raises them again
            signal.signal(number, stop)
        started(f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}")
        server.run(sockets=[bound])


def _bound(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2_048)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"Cannot listen on {host}:{port} ({error}). Another server may use it. Give another --port, or 0 for any "
            "free one."
        ) from error


PAGE_FILES = ("chat.css", "chat.js", "conversations.js", "reader.js", "upload.js", "log.css", "log.js")
_OPEN = frozenset({"/", "/log", "/health", "/ready", *(f"/{name}" for name in PAGE_FILES)})


class Guard:
    """An ASGI application around another one, to which it passes only allowed requests.

    A foreign page, open in a browser on this machine, can send requests to 127.0.0.1. Two headers reveal it, since no
    page can forge them: `Origin` is the page's own, and `Host` is the name that the browser resolved (even if it was
    then pointed at 127.0.0.1: DNS rebinding). So `Origin`, if present, must be this server's, and `Host` must be an
    address or a name of this server.

    keys: the valid keys, which may be replaced. If there are any, one is required except for the pages, /health and
    /ready; the application finds it by `key_of`. host: the server's address. names: its further names for clients
    (None: any).
    """

    def __init__(self, app: ASGIApp, *, keys: Sequence[Key], host: str, names: Collection[str] | None = ()) -> None:
        self._app, self.keys, self._has_any_name = app, keys, names is None
        self._paces = dict[Key, AsyncLimiter]()
        self._names = {"localhost", host.lower(), *(name.lower() for name in names or ())}
        self._only_loopback = is_loopback(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        key = find_key(self.keys, headers.get("authorization", "")) if self.keys else EVERYBODY
        if not self._is_own(host):
            app = error_reply(
                421, f"This server is not {host[:100]!r}. Call it by its address, or start it with that name (--name)."
            )
        elif origin is not None and origin.partition("://")[2] != host:
            app = error_reply(
                403, f"The request is of a page of {origin[:100]!r}. Only this server's own page may send requests."
            )
        elif scope["path"] not in _OPEN and key is None:
            wrong = " The key that was sent is not valid." if "authorization" in headers else ""
            app = error_reply(
                401, f"A key is needed.{wrong} Send it as `Authorization: Bearer KEY`.", {"WWW-Authenticate": "Bearer"}
            )
        elif key is not None and scope["method"] in ("POST", "PUT") and (wait_s := await self._wait_s(key)):
            text = f"This key may send {key.per_minute} requests a minute. Send the next one in {wait_s} seconds."
            app = error_reply(429, text, {"Retry-After": str(wait_s)})
        else:
            app, scope = self._app, {**scope, IN_SCOPE: key} if key else scope
        await app(scope, receive, send)

    def _is_own(self, host: str) -> bool:
        """Return whether a Host header is a name of the server, or an address (of this machine if only it may ask)."""
        name = host.lower().rpartition("]")[0].removeprefix("[") or host.lower().partition(":")[0]
        if self._has_any_name or name in self._names:
            return True
        try:
            return ip_address(name).is_loopback or not self._only_loopback
        except ValueError:
            return False

    async def _wait_s(self, key: Key) -> int:
        """Count a request of a key. Return 0, or, if it has sent too many, the seconds until it may send another."""
        if key.per_minute is None:
            return 0
        limiter = self._paces.setdefault(key, AsyncLimiter(key.per_minute, 60))
        if not limiter.has_capacity():
            return ceil(60 / key.per_minute)
        await limiter.acquire()
        return 0
