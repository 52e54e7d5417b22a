"""Work on many items, batch by batch, into a growing file, so that the same command resumes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from rich.console import Console

from evoseek.errors import EvoseekError, RunError
from evoseek.eval.statistics import surely_more
from evoseek.storage.jsonl import ResumableJsonl, Tree, open_growing_file
from evoseek.text.printable import for_example, say
from evoseek.text.progress import STOPPING_AFTER_BATCH, CountProgress
from evoseek.training.interrupt import stop_on_interrupt

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The progress of a file: the finished items, counts by name, and counted reasons of failures."""

    done: int = 0
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    failures: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Made:
    """The result of a batch: rows for the file, counts, and the reasons of failures among its `tried` attempts."""

    rows: Iterable[Mapping[str, object]]
    counts: Mapping[str, int]
    failures: Sequence[str]
    tried: int


@dataclass(frozen=True, slots=True)
class BatchWork(Generic[T, R]):
    """Work on items: `one` with each item and its number (from 1), `size` concurrently, then `made_of` with their
    results. `noun` names the items; `max_failed` is the largest share of failed attempts in a kept batch."""

    one: Callable[[T, int], Awaitable[R]]
    made_of: Callable[[Sequence[R]], Made]
    size: int
    noun: str
    max_failed: float = 1.0

    def run(
        self, items: Sequence[T], out: Path, settings: Tree, console: Console, defaults: Tree | None = None
    ) -> BatchProgress | None:
        """Fill a new file, or resume one begun with the same settings (`defaults` as in `open_growing_file`). None,
        with a report, if Ctrl-C ended it. Raises ConfigError if `out` is another file or cannot be made, and
        EvoseekError as `fill`."""
        with (
            open_growing_file(out, settings, defaults) as file,
            stop_on_interrupt(lambda: say(console, STOPPING_AFTER_BATCH)) as interrupted,
            CountProgress(console, self.noun) as progress,
        ):
            reached = asyncio.run(self.fill(items, file, should_stop=interrupted, progress=progress))
        if reached.done == len(items):
            return reached
        say(console, f"Stopped after {reached.done} of {len(items)} {self.noun}. The same command resumes from there.")
        return None

    async def fill(
        self,
        items: Sequence[T],
        file: ResumableJsonl,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> BatchProgress:
        """Append the result of each batch to the file, resuming at its end. `progress` is called after each item.

        Raises EvoseekError if surely more than the share `max_failed` of a batch failed: nothing of the batch is
        written, so resuming repeats its items. Raises RunError for a file that another version began.
        """
        try:
            reached = BatchProgress(**file.reached)
        except TypeError as error:
            raise RunError(
                f"{file.path} was begun by another version of evoseek ({error}). Give another file."
            ) from None
        finished = reached.done

        async def counted(item: T, number: int) -> R:
            nonlocal finished
            result = await self.one(item, number)
            finished += 1
            progress(finished, len(items))
            return result

        while reached.done < len(items) and not should_stop():
            batch = items[reached.done : reached.done + self.size]
            made = self.made_of(await asyncio.gather(*map(counted, batch, range(reached.done + 1, len(items) + 1))))
            if surely_more(len(made.failures), made.tried, self.max_failed):
                raise EvoseekError(
                    f"{len(made.failures)} of {made.tried} attempts failed, after {reached.done} {self.noun}. "
                    f"{for_example(made.failures)} Nothing of this batch was written. Repair what failed, and run the "
                    "same command again to resume."
                )
            reached = BatchProgress(
                reached.done + len(batch),
                dict(Counter(reached.counts) + Counter(made.counts)),
                dict(Counter(reached.failures) + Counter(made.failures)),
            )
            file.append_batch(made.rows, asdict(reached))
        return reached
