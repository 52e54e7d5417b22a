"""JSON lines that are read to be shown: what is damaged is counted and reported, and the rest is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from evoseek.errors import RunError

T = TypeVar("T")


def readable_lines(path: Path, make: Callable[[Any], T], notes: list[str]) -> Iterator[T]:
    """What `make` makes of each line, in order; nothing without a file.

    Lines that are no JSON, or that `make` refuses by a ValueError, LookupError, TypeError, AttributeError or
    OverflowError, are left out; so is a last line without its end, which is still being written. One note says how many
    and which is the first.
    Raises RunError if the file cannot be read.
    """
    damaged, first, unfinished = 0, "", False
    try:
        if not path.exists():
            return
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    unfinished = True
                    break
                try:
                    made = make(json.loads(line))
                except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
                    damaged += 1
                    first = first or f"line {number} ({type(error).__name__}: {error})"
                    continue
                yield made
    except OSError as error:
        raise RunError(
            f"{path} cannot be read ({error.strerror or error}). Give this user access to it, or copy the run to a "
            "place that can be read."
        ) from error
    if damaged:
        what = "1 damaged line is" if damaged == 1 else f"{damaged} damaged lines are"
        notes.append(f"{path.name}: {what} left out; the first is {first[:300]}.")
    if unfinished:
        notes.append(f"{path.name}: the last line is not finished, because the run is still writing it or was killed.")
