"""One server of an engine: JSON in, JSON out, with retries and a circuit breaker."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx2

from evoseek.errors import SamplerError, ToolError
from evoseek.http.limits import CircuitBreaker, Retry, TransientError
from evoseek.http.server import Reply, Server, check_url, json_of
from evoseek.models.settings import EngineSettings

T = TypeVar("T")

_FAILURES, _PAUSE_S = 6, 30.0  # failed calls in a row after which a server is lost, and seconds until it is tried again
_ATTEMPTS, _WAIT_S, _MAX_WAIT_S = 3, 0.5, 30.0  # of a call, and the seconds between them


class RefusedError(SamplerError):
    """The server is up, and refused a request."""


class Link:
    """Calls one server. Transient failures, and replies that cannot be read, are retried; when too many calls in a row
    have failed, the server counts as lost (`is_lost`) and is not called, but for one trial now and then.

    `wait_s` is the first wait before a retry, and `clock` decides when a lost server is due for its trial. Raises
    ConfigError for a url that is none, or an api_key that no header can hold.
    """

    def __init__(
        self,
        url: str,
        settings: EngineSettings,
        *,
        api_key: str = "",
        attempts: int = _ATTEMPTS,
        wait_s: float = _WAIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_address(url)
        self.url = url.rstrip("/")
        self._api_key = api_key
        self._breaker = CircuitBreaker(_FAILURES, _PAUSE_S, clock)
        self._server = Server(
            setting="sampler.urls",
            api_key=api_key,
            timeout_s=settings.timeout_s,
            retry=Retry(attempts, wait_s, _MAX_WAIT_S),
            concurrency=settings.concurrency,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
        )

    @property
    def is_lost(self) -> bool:
        """Whether a call would be refused now, because the last ones failed."""
        return self._breaker.is_refusing

    async def get(self, path: str, read: Callable[[Any], T], body: object = None) -> T:
        """What `read` makes of the JSON value of the reply to a GET, or with a body to a POST, which is repeated if it
        raises TransientError. Raises SamplerError, which is a RefusedError for a status of 4xx."""
        method = "GET" if body is None else "POST"
        return await self._call(method, path, body, lambda reply: read(json_of(reply, secret=self._api_key)))

    async def stream(self, path: str, body: Callable[[], object], read: Callable[[Any], T | None]) -> T:
        """What `read` makes of the JSON value of an event, for the first of which it makes anything, in the reply to
        a request with a `body`. If it fails, `body` is called again for what is missing then; a reply that broke off
        after an event is no failed attempt, however often that happens. Raises as `get`."""

        async def attempt(client: httpx2.AsyncClient) -> T:
            while True:
                with self._breaker.call():
                    done = await self._events(client, path, body(), read)
                if done is not None:
                    return done

        return await self._named(f"POST {path}", attempt)

    async def send(self, path: str, body: object = None, *, retried: int | None = None) -> None:
        """A POST whose reply holds nothing. A reply with the status `retried` is a transient failure. Raises as
        `get`."""
        await self._call("POST", path, body, lambda _: None, retried)

    async def _call(
        self, method: str, path: str, body: object, read: Callable[[bytes], T], retried: int | None = None
    ) -> T:
        request = {} if body is None else {"json": body}

        async def attempt(client: httpx2.AsyncClient) -> T:
            with self._breaker.call():
                reply = await self._server.send(client, method, f"{self.url}{path}", **request)
                if reply.status == retried:
                    raise TransientError(self._server.refusal(reply))
                if not reply.is_success:
                    raise _Refusal(self._server.refusal(reply))
                return read(reply.body)

        return await self._named(f"{method} {path}", attempt)

    async def _events(
        self, client: httpx2.AsyncClient, path: str, body: object, read: Callable[[Any], T | None]
    ) -> T | None:
        """One attempt of `stream`; None if the reply broke off after an event that could be read."""
        has_begun, wrong = False, None

        def each(data: str) -> T | None:
            nonlocal has_begun, wrong
            try:
                done = read(json_of(data.encode(), secret=self._api_key))
            except TransientError as error:
                wrong = error
                raise
            has_begun = True
            return done

        try:
            reply = await self._server.stream(client, "POST", f"{self.url}{path}", each, json=body)
        except TransientError:
            if has_begun and wrong is None:
                return None
            raise
        if isinstance(reply, Reply):
            raise _Refusal(self._server.refusal(reply))
        return reply

    async def _named(self, what: str, attempt: Callable[[httpx2.AsyncClient], Awaitable[T]]) -> T:
        """The result of a call. Raises SamplerError, which names the server and the request."""
        try:
            return await self._server.call(attempt)
        except _Refusal as error:
            raise RefusedError(f"The server {self.url} refused {what}: {error}") from error
        except ToolError as error:
            raise SamplerError(f"The server {self.url} failed at {what}: {error}") from error


def check_address(url: str) -> None:
    """Raises ConfigError for what is no server's address."""
    check_url(url, setting="sampler.urls", example="http://127.0.0.1:8000")


class _Refusal(ToolError):
    """A status of 4xx that is not retried."""
