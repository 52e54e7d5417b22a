"""A circuit breaker: calls to a server that is down fail at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from evoseek.errors import ConfigError, ToolError
from evoseek.http.retry import RateLimitError, TransientError

_POLL_S = 0.02


class CircuitBreaker:
    """Opens after `failures` calls in a row have failed; while it is open, every call is refused at once, except one
    trial call every `pause_s` seconds. Calls that arrive during a trial may wait for its end (`ready`), so that they
    are not refused if the server is back. Any call that reaches the server closes it.

    A call fails by TransientError: no connection, no reply in time, 5xx, what cannot be read. A server that is busy
    (429) or refuses a call (401) is up. Cancelled calls do not count.

    Raises ConfigError for less than one failure or no pause.
    """

    def __init__(self, failures: int, pause_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        if failures < 1 or not pause_s > 0:
            raise ConfigError(
                f"A circuit breaker cannot open after {failures} failures, for {pause_s} seconds. Expected at least "
                "one failure and a time above 0."
            )
        self._failures, self._pause_s, self._clock = failures, pause_s, clock
        self._in_a_row, self._cause = 0, ""
        self._until: float | None = None  # while open: when the next trial is due
        self._on_trial = False

    @property
    def is_open(self) -> bool:
        """Whether calls are refused."""
        return self._until is not None

    @property
    def is_refusing(self) -> bool:
        """Whether a call would be refused now: it is open, and no trial is due."""
        return self._wait_s() > 0

    def check(self) -> None:
        """Raises ToolError, with the last cause, if a call would be refused now."""
        wait_s = self._wait_s()
        if wait_s > 0:
            raise ToolError(
                f"it is not called, since its last {self._in_a_row} calls failed; the last time {self._cause}. It is "
                f"tried again in {wait_s:.0f} s. Check the server and the network."
            )

    async def ready(self) -> None:
        """Wait for the end of a trial. Raises ToolError if a call would be refused then."""
        while self._on_trial:
            await asyncio.sleep(_POLL_S)
        self.check()

    @contextmanager
    def call(self) -> Generator[None]:
        """One call, to be made in the block. Raises ToolError if it is refused."""
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
