"""Ctrl-C and SIGTERM: they stop a run after the current step, and a second Ctrl-C aborts it. Before the first step,
Ctrl-C ends the process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130  # the status that a shell reports for a program that Ctrl-C ended


@contextmanager
def end_on_interrupt() -> Generator[None]:
    """Let SIGINT end the process immediately with status `INTERRUPTED` within the block, which only loads modules,
    unless SIGINT is ignored or handled otherwise. Works in the main thread only."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    # A KeyboardInterrupt may get lost there: in callbacks and finalizers between two imports, or in a library that
    # tries an import and continues without it.
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def stop_on_interrupt(on_request: Callable[[], None]) -> Generator[Callable[[], bool]]:
    """Within the block, let the first SIGINT or SIGTERM call `on_request` and make the given function return True. A
    second SIGINT raises KeyboardInterrupt as usual; a second SIGTERM does nothing, since supervisors send it
    repeatedly. An ignored SIGTERM stays ignored. Works in the main thread only, as all signal handling."""
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
