"""Calls any search engine: with a check of its results, with retries, and with one call for equal queries."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any, TypeVar

from evoseek.errors import ToolError
from evoseek.http.limits import Retry
from evoseek.protocols import QuestionEngine, SearchEngine
from evoseek.types import Passage

T = TypeVar("T")
MORE = 8  # extra passages to inspect: they may be copies of the requested ones
_TELLING = 100  # characters of a text that shows its subject by itself
_MOST = 1_000  # extra passages to fetch, since copies take up places


class RetryingEngine:
    """Calls `engine` up to `attempts` times: `wait_s` seconds after the first failure, twice as long after each further
    one.

    Without retries, a failing engine biases learning although no failed rollout is ever scored: a rollout with many
    searches fails more often, so mostly rollouts with few searches would remain.

    Only ToolError is retried; any other exception, including cancellation, is raised immediately.
    """

    def __init__(self, engine: SearchEngine, attempts: int, wait_s: float) -> None:
        self._engine, self._retry = engine, Retry(attempts, wait_s, errors=ToolError, jitter=False)
        self.is_local = engine.is_local

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return the engine's results. Raises ToolError, with the last cause, if every attempt failed."""
        try:
            return await self._retry.run(lambda: self._engine.search(queries, k))
        except ToolError as error:
            raise ToolError(
                f"The search engine failed at each of {self._retry.attempts} attempts; the last time: {error}"
            ) from error


def retried(engine: SearchEngine | QuestionEngine, *, attempts: int, wait_s: float) -> SearchEngine | QuestionEngine:
    """Add retries to an engine, unless it retries by itself or is bound to a question first."""
    if isinstance(engine, QuestionEngine) or getattr(engine, "retries", False):
        return engine
    return RetryingEngine(engine, attempts=attempts, wait_s=wait_s)


async def search(engine: SearchEngine, queries: Sequence[str], k: int) -> list[list[Passage]]:
    """Search with the engine. Raises ToolError, also if the results do not have the shape of `SearchEngine`."""
    found: Any = await engine.search(queries, k)
    if not isinstance(found, list | tuple) or len(found) != len(queries):
        got = f"{len(found)} results" if isinstance(found, list | tuple) else repr(found)[:80]
        raise _wrong(engine, f"{got} for {len(queries)} queries")
    for passages in found:
        if not isinstance(passages, list | tuple):
            raise _wrong(engine, f"{repr(passages)[:80]} as the result of a query")
        if wrong := [passage for passage in passages if not _is_passage(passage)]:
            raise _wrong(engine, f"{repr(wrong[0])[:80]}, of the type {type(wrong[0]).__name__}, as a passage")
    return [list(passages[:k]) for passages in found]


async def search_others(
    engine: SearchEngine, queries: Sequence[str], hidden: Sequence[Collection[str]], k: int
) -> list[list[Passage]]:
    """Return, for each query, the best `k` passages outside the documents `hidden` from it. More passages are fetched
    until `k` are found. Raises ToolError as `search` does."""
    shown = [list[Passage]() for _ in queries]
    left, wanted = list(range(len(queries))), k
    while left:
        found = await search(engine, [queries[place] for place in left], wanted)
        for place, passages in zip(left, found, strict=True):
            shown[place] = outside(passages, hidden[place])[:k]
        more = (place for place, passages in zip(left, found, strict=True) if len(passages) == wanted)
        left, wanted = [place for place in more if len(shown[place]) < k], 2 * wanted
    return shown


def outside(passages: Iterable[Passage], hidden: Collection[str]) -> list[Passage]:
    """Return the passages as if these documents did not exist: copies in other documents remain."""
    left = [[one for one in (passage, *passage.copies) if one.document_id not in hidden] for passage in passages]
    return [replace(own[0], copies=tuple(own[1:])) for own in left if own]


def distinct(ranked: Callable[[int], list[Passage]], k: int) -> list[Passage]:
    """Return the best `k` passages with different texts of a ranking, which is called with the number of passages to
    return. Each has the inspected passages with the same text as `copies`."""
    wanted, limit = k + MORE, k + _MOST
    while k > 0:
        found = ranked(wanted)
        shown = merge_copies(found)
        if len(shown) >= k or len(found) < wanted or wanted == limit:
            return shown[:k]
        wanted = min(4 * wanted, limit)
    return []


def merge_copies(passages: Iterable[Passage]) -> list[Passage]:
    """Merge passages with the same text: the first one, with the others as its copies."""
    alike: dict[object, list[Passage]] = {}
    for passage in passages:
        alike.setdefault(_said(passage), []).extend((passage, *passage.copies))
    return [replace(own[0], copies=tuple(own[1:])) if own[1:] else own[0] for own in alike.values()]


def _said(passage: Passage) -> object:
    """Return the key that copies share: the text without case and white space. A short text may be about anything ("The
    default is 10."), so its heading and title are added, unless the title is the file's name."""
    text = " ".join(unicodedata.normalize("NFC", passage.text).casefold().split())
    if len(text) >= _TELLING:
        return text
    name = PurePath((passage.file or "").removesuffix(".gz")).stem
    title = "" if passage.title == name else passage.title
    return text or passage.id, title, None if passage.is_row else passage.heading


def _is_passage(passage: Any) -> bool:
    fields = ("id", "document_id", "title", "text")
    return isinstance(passage, Passage) and all(isinstance(getattr(passage, field), str) for field in fields)


def _wrong(engine: SearchEngine, got: str) -> ToolError:
    return ToolError(
        f"The search engine {type(engine).__name__} gave {got}. Expected for each query a list of "
        "evoseek.types.Passage whose id, document_id, title and text are texts. Correct its method `search`."
    )


async def all_of(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Await concurrent calls; return their results in order. If one fails, its error is raised when all have ended."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    if failed := next((result for result in results if isinstance(result, BaseException)), None):
        raise failed
    return [result for result in results if not isinstance(result, BaseException)]


async def for_each(queries: Sequence[str], call: Callable[[str], Awaitable[list[Passage]]]) -> list[list[Passage]]:
    """Await `call` for each query, in order, as `all_of` does; equal queries share one call."""
    distinct = list(dict.fromkeys(queries))
    found = dict(zip(distinct, await all_of(map(call, distinct)), strict=True))
    return [list(found[query]) for query in queries]  # callers do not share lists
