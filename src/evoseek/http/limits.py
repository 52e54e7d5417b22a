"""Limits on calls of a server: retries after transient failures, and a circuit breaker."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exception,
    wait_exponential,
    wait_random_exponential,
)
from tenacity.wait import wait_base

from evoseek.errors import ToolError

T = TypeVar("T")

_POLL_S = 0.02


class TransientError(Exception):
    """A transient failure; the server asks for `wait_s` seconds without a request."""

    def __init__(self, what: str, wait_s: float = 0.0) -> None:
        super().__init__(what)
        self.wait_s = wait_s


class RateLimitError(TransientError):
    """The server is up, but receives too many calls."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Makes a call up to `attempts` times, while it fails with one of `errors`.

    The wait before the n-th retry is drawn evenly from 0 to wait_s * 2**(n - 1) seconds (full jitter). Without `jitter`
    it is exactly wait_s * 2**(n - 1) seconds. The wait that the server asks for (`TransientError.wait_s`) is added.
    Neither part exceeds `max_wait_s`, so if each attempt is bounded in time, all of them are.
    """

    attempts: int
    wait_s: float
    max_wait_s: float = math.inf
    errors: type[Exception] = TransientError
    jitter: bool = True

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the call. Raises the last attempt's error; an error that is not among `errors` ends the
        attempts immediately."""

        async def attempt() -> T:  # tenacity awaits what such a function returns, but not what others do
            return await call()

        retrying = AsyncRetrying(
            sleep=asyncio.sleep,
            stop=stop_after_attempt(self.attempts),
            wait=self.wait(),
            retry=retry_if_exception_type(self.errors),
            reraise=True,
        )
        return await retrying(attempt)

    def wait(self) -> wait_base:
        growing = wait_random_exponential if self.jitter else wait_exponential
        return wait_exception(self._retry_after_s) + growing(self.wait_s, self.max_wait_s)

    def _retry_after_s(self, error: BaseException) -> float:
        return min(error.wait_s, self.max_wait_s) if isinstance(error, TransientError) else 0.0


def seconds_of(retry_after: str) -> float:
    """Parse a Retry-After header into seconds (RFC 9110, 10.2.3: a number, or a date); 0 if it is not valid."""
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", retry_after.strip()):
        return float(retry_after)
    try:
        when = parsedate_to_datetime(retry_after)
        wait = when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)
    except (ValueError, OverflowError):
        return 0.0
    return max(wait.total_seconds(), 0.0)


class CircuitBreaker:
    """Opens after `failures` consecutive failed calls. While it is open, every call is refused immediately, except one
    trial call every `pause_s` seconds. Calls that arrive during a trial may wait for its end (`ready`), so that they
    are not refused if the server is back. Any call that reaches the server closes it.

    A call fails by TransientError: no connection, no reply in time, status 5xx, an unreadable reply. A server that is
    busy (429) or refuses a call (401) is up. Cancelled calls do not count.
    """

    def __init__(self, failures: int, pause_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._failures, self._pause_s, self._clock = failures, pause_s, clock
        self._in_a_row, self._cause = 0, ""
        self._until: float | None = None  # while open: when the next trial is due
        self._on_trial = False

    @property
    def is_open(self) -> bool:
        return self._until is not None

    @property
    def is_refusing(self) -> bool:
        """Whether a call would be refused now: the breaker is open and no trial is due."""
        return self._wait_s() > 0

    def check(self) -> None:
        """Raise ToolError, with the last cause, if a call would be refused now."""
        wait_s = self._wait_s()
        if wait_s > 0:
            raise ToolError(
                f"it is not called, since its last {self._in_a_row} calls failed; the last time {self._cause}. It is "
                f"tried again in {wait_s:.0f} s. Check the server and the network.",
                code="server.paused",
            )

    async def ready(self) -> None:
        """Wait for the end of a trial. Raises ToolError if a call would be refused then."""
        while self._on_trial:
            await asyncio.sleep(_POLL_S)
        self.check()

    @contextmanager
    def call(self) -> Generator[None]:
        """Make one call within the block. Raises ToolError if it is refused."""
        self.check()
        is_trial = self.is_open
        if is_trial:
            self._on_trial, self._until = True, self._clock() + self._pause_s
        try:
            yield
        except (RateLimitError, ToolError):
            self._close()
            raise
        except TransientError as error:
            self._in_a_row, self._cause = self._in_a_row + 1, str(error)
            if is_trial or (self._until is None and self._in_a_row >= self._failures):
                self._until = self._clock() + self._pause_s
            raise
        else:
            self._close()
        finally:
            if is_trial:
                self._on_trial = False

    def _wait_s(self) -> float:
        return 0.0 if self._until is None else self._until - self._clock()

    def _close(self) -> None:
        self._in_a_row, self._until = 0, None
