"""The progress of long work: a live bar on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

STOPPING = "Stopping after this step; its checkpoint is saved. Press Ctrl-C again to abort immediately."
STOPPING_AFTER_BATCH = "Stopping after this batch. Press Ctrl-C again to abort immediately: finished rows are kept."

_SILENT_S = 60.0  # seconds without a line, after which one is printed


class LiveProgress:
    """A context manager that shows how many items are done. The bar appears with the first report, so that another bar
    may come before."""

    def __init__(self, console: Console, noun: str) -> None:
        self._console, self._noun = console, noun
        self._bar = Bar(
            TextColumn(noun, markup=False),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def show(self, done: int, total: int, text: str) -> None:
        """Report how many are done, with a line of details."""
        if self._console.is_terminal:
            self._bar.start()
            self._bar.update(self._task, completed=done, total=total, description=text)
        else:
            line = f"{self._noun} {done}/{total}  {text}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class CountProgress(LiveProgress):
    """Counts items: call it after each, or after some. Without a terminal it prints a line for each tenth of the items,
    and after a minute without a line."""

    _last, _shown = -1, 0.0

    def __call__(self, done: int, of: int, text: str = "") -> None:
        """Show how many are done, with a line of details."""
        tenth, now = max(1, -(-of // 10)), time.monotonic()
        is_tenth = done != self._last and (done in (0, of) or done // tenth > max(self._last, 0) // tenth)
        self._last, self._shown = done, self._shown or now
        if is_tenth or now - self._shown >= _SILENT_S or self._console.is_terminal:
            self.show(done, of, text)
            self._shown = now
