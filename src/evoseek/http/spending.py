"""What requests to paid services cost: counted where they are made, for the work in whose context they are made."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

Money = dict[str, float | None]
"""What each part has cost, by its table of settings; None where a reply did not say how much it used."""

_SPENT: ContextVar[Money | None] = ContextVar("spent", default=None)


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a chat endpoint for a million tokens, in any currency; `cached` is that of input that the endpoint had
    in its cache (None: as other input)."""

    input: float
    output: float
    cached: float | None = None

    def of(self, reply: Any) -> float | None:
        """What a reply (the JSON value) cost, by the `usage` in it; None if it has none."""
        match reply:
            case {"usage": {"prompt_tokens": int(read), "completion_tokens": int(written), **more}}:
                details = more.get("prompt_tokens_details")
                found = details.get("cached_tokens") if isinstance(details, dict) else 0
                cached = found if isinstance(found, int) and self.cached is not None else 0
                fresh = self.input * (read - cached) + (self.cached or 0.0) * cached
                return (fresh + self.output * written) / 1_000_000
            case _:
                return None


@contextmanager
def spending() -> Generator[Money]:
    """What is spent within this context and the tasks that are created in it."""
    spent: Money = {}
    token = _SPENT.set(spent)
    try:
        yield spent
    finally:
        _SPENT.reset(token)


def spend(part: str, money: float | None) -> None:
    """Count a request of a part."""
    spent = _SPENT.get()
    if spent is not None:
        spent[part] = total(spent.get(part, 0.0), money)


def total(first: float | None, second: float | None) -> float | None:
    """Their sum; None if either is unknown."""
    return None if first is None or second is None else first + second
