"""Ctrl-C or SIGTERM stops a run after the current step; a second Ctrl-C aborts it. Before the first step, Ctrl-C ends
the process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130  # the status that a shell reports for a program that Ctrl-C ended


@contextmanager
def end_on_interrupt() -> Generator[None]:
    """Within the block, which loads modules and nothing else, SIGINT ends the process at once with status
    `INTERRUPTED`, unless it is ignored or handled in another way. Works in the main thread only."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    # A KeyboardInterrupt may get lost there, and the run would continue: in the callbacks and finalizers that run
    # between two imports, or in a library that tries an import and continues without it.
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def stop_on_interrupt(on_request: Callable[[], None]) -> Generator[Callable[[], bool]]:
    """Within the block the first SIGINT or SIGTERM calls `on_request` and makes the given function return True. After
    it a SIGINT raises KeyboardInterrupt as usual; a SIGTERM does nothing more, since supervisors send it repeatedly.
    A SIGTERM that was ignored before stays so. Works in the main thread only, as all signal handling."""
    requested = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        if requested:
            if number == signal.SIGINT:
                signal.default_int_handler(number, frame)
            return
        requested = True
        on_request()

    previous = {signal.SIGINT: signal.signal(signal.SIGINT, handle)}
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        previous[signal.SIGTERM] = signal.signal(signal.SIGTERM, handle)
    try:
        yield lambda: requested
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
