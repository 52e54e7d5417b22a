"""Ctrl-C asks a run to stop after the current step; a second one aborts it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_interrupt(on_request: Callable[[], None]) -> Generator[Callable[[], bool]]:
    """Within the block the first SIGINT calls `on_request` and makes the given function return True; the second one
    raises KeyboardInterrupt as usual. Works in the main thread only, as all signal handling."""
    requested = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        if requested:
            signal.default_int_handler(number, frame)
        requested = True
        on_request()

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: requested
    finally:
        signal.signal(signal.SIGINT, previous)
