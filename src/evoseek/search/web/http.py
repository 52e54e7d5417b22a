"""The HTTP client of search providers, with a rate limit, a budget and a circuit breaker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2
from aiolimiter import AsyncLimiter

from evoseek.errors import ConfigError, ToolError
from evoseek.http.limits import CallPool, CircuitBreaker, Retry
from evoseek.http.server import Server, json_of

T = TypeVar("T")

_BURST_S = 0.1  # the requests of so many seconds may be made in a burst


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The limits of calls to a provider.

    With these defaults, calls to a provider that is down stop within five seconds of the first of ten calls, even if it
    hangs: the tenth request is made within a second, and fails after timeout_s.

    Attributes:
        rate_per_s: requests a second, repetitions included, of this process
        concurrency, waiting, deadline_s: as of `CallPool`; a call that waits to be retried is under way
        budget: requests over the client's life, repetitions included; None is no limit
        attempts: how often a call is made at most
        timeout_s: seconds for one attempt
        total_s: seconds for all attempts and the waits between them, but not for waiting for one's turn
        wait_s, max_wait_s: as of `Retry`
        failures, pause_s: as of `CircuitBreaker`
    """

    rate_per_s: float = 10.0
    concurrency: int = 32
    waiting: int | None = None
    deadline_s: float | None = None
    budget: int | None = None
    attempts: int = 4
    timeout_s: float = 3.5
    total_s: float = 45.0
    wait_s: float = 0.5
    max_wait_s: float = 20.0
    failures: int = 10
    pause_s: float = 10.0


class WebClient:
    """Requests to a provider, for JSON. `calls` counts them.

    They are made and retried as `Server` says, within the limits; a body that is not JSON is a transient failure.
    Raises ConfigError for limits that allow no call, or an api_key that no header can hold.
    """

    def __init__(self, name: str, *, api_key: str, limits: CallLimits) -> None:
        if not limits.rate_per_s > 0 or limits.budget == 0:
            budget = "any number of" if limits.budget is None else limits.budget
            raise ConfigError(
                f"{name} cannot be called {limits.rate_per_s} times a second, {budget} times in all. Expected numbers "
                "above 0."
            )
        if limits.total_s < limits.timeout_s:
            raise ConfigError(
                f"{name} cannot be called for {limits.timeout_s:g} seconds an attempt (timeout_s) and "
                f"{limits.total_s:g} for all attempts (total_s). Lower the one, or raise the other."
            )
        self._name, self._api_key, self._limits, self.calls = name, api_key, limits, 0
        self._server = Server(
            setting="url",
            api_key=api_key,
            timeout_s=limits.timeout_s,
            retry=Retry(limits.attempts, limits.wait_s, limits.max_wait_s, limits.total_s),
            pool=CallPool(concurrency=limits.concurrency, waiting=limits.waiting, deadline_s=limits.deadline_s),
        )
        self.breaker = CircuitBreaker(limits.failures, limits.pause_s)
        self._limiter: tuple[asyncio.AbstractEventLoop, AsyncLimiter] | None = None

    async def call(self, read: Callable[[Any], T], method: str, url: str, **request: Any) -> T:
        """The value that `read` returns for the JSON reply to a request (in the form of httpx2).

        `read` may raise TransientError for a reply that is a transient failure, and ToolError. Raises ToolError.
        """

        async def attempt(client: httpx2.AsyncClient) -> T:
            await self.breaker.ready()  # since the breaker may have opened meanwhile
            if self.calls == self._limits.budget:
                raise ToolError(f"the budget of {self.calls} requests is spent. Raise it, or end here.")
            with self.breaker.call():
                self.calls += 1
                reply = await self._server.send(client, method, url, **request)
                if reply.is_success:
                    return read(json_of(reply.body, secret=self._api_key))
                what = self._server.refusal(reply)
                raise ToolError(f"{what}. It is not retried: correct the key, the url or the options.")

        try:
            await self.breaker.ready()
            return await self._server.call(attempt, turn=self._turn)
        except ToolError as error:
            raise ToolError(f"There is no answer of {self._name}: {error}") from error

    def shown(self, text: object) -> str:
        """A text of the provider as it may be shown in an error."""
        return self._server.shown(text)

    async def _turn(self) -> None:
        """Wait until the rate allows a request. Raises ToolError while the provider is down."""
        await self.breaker.ready()
        loop = asyncio.get_running_loop()
        if self._limiter is None or self._limiter[0] is not loop:
            burst = max(1.0, self._limits.rate_per_s * _BURST_S)
            self._limiter = loop, AsyncLimiter(burst, burst / self._limits.rate_per_s)
        await self._limiter[1].acquire()
