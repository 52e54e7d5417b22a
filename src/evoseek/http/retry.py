"""Retrying a call after a transient failure."""

from __future__ import annotations

import asyncio
import math
import re
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


class TransientError(Exception):
    """A transient failure; the server asks for no request for `wait_s` seconds."""

    def __init__(self, what: str, wait_s: float = 0.0) -> None:
        super().__init__(what)
        self.wait_s = wait_s


class RateLimitError(TransientError):
    """The server is up, but is called too often."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Makes a call up to `attempts` times, while it fails with one of `errors`.

    The wait before the n-th retry is drawn evenly from 0 to wait_s * 2**(n - 1) seconds (full jitter), or is exactly
    that long without `jitter`; the wait that the server asks for (`TransientError.wait_s`) is added. Neither part
    exceeds `max_wait_s`. `total_s` bounds the seconds of all attempts and the waits between them.
    """

    attempts: int
    wait_s: float
    max_wait_s: float = math.inf
    total_s: float | None = None
    errors: type[Exception] = TransientError
    jitter: bool = True

    async def run(self, call: Callable[[], Awaitable[T]], *, turn: Callable[[], Awaitable[None]] | None = None) -> T:
        """The result of the call. `turn` is awaited before each attempt and does not count in `total_s`.

        Raises the last attempt's error, ToolError when `total_s` is over, and at once any error that is not among
        `errors`.
        """
        timer = asyncio.timeout(self.total_s)

        async def attempt() -> T:
            if turn is not None:
                with _stopped(timer):
                    await turn()
            return await call()

        try:
            async with timer:
                return await self._retrying()(attempt)
        except TimeoutError as error:
            if not timer.expired():  # the call's own
                raise
            raise ToolError(
                f"it had not answered within {self.total_s:g} seconds, repetitions included. Check the server and the "
                "network, or raise total_s."
            ) from error

    def wait(self) -> wait_base:
        """The wait before the n-th retry, in seconds."""
        growing = wait_random_exponential if self.jitter else wait_exponential
        return wait_exception(self._asked_s) + growing(self.wait_s, self.max_wait_s)

    def _retrying(self) -> AsyncRetrying:
        return AsyncRetrying(
            sleep=asyncio.sleep,
            stop=stop_after_attempt(self.attempts),
            wait=self.wait(),
            retry=retry_if_exception_type(self.errors),
            reraise=True,
        )

    def _asked_s(self, error: BaseException) -> float:
        return min(error.wait_s, self.max_wait_s) if isinstance(error, TransientError) else 0.0


@contextmanager
def _stopped(timer: asyncio.Timeout) -> Generator[None]:
    """Time in the block does not count for the timer."""
    loop, until = asyncio.get_running_loop(), timer.when()
    if until is None:
        yield
        return
    left_s = until - loop.time()
    timer.reschedule(None)
    yield
    timer.reschedule(loop.time() + left_s)


def seconds_of(retry_after: str) -> float:
    """The seconds that a Retry-After header means (RFC 9110, 10.2.3: a number, or a date); 0 if it cannot be parsed."""
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", retry_after.strip()):
        return float(retry_after)
    try:
        when = parsedate_to_datetime(retry_after)
        wait = when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)
    except (ValueError, OverflowError):
        return 0.0
    return max(wait.total_seconds(), 0.0)
