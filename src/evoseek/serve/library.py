"""The documents behind an agent, for clients that search by themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from evoseek.errors import DataError
from evoseek.protocols import PassageStore, SearchEngine
from evoseek.search.found import search
from evoseek.types import Passage

MAX_PASSAGES, MAX_NEIGHBOURS, MAX_QUERY, MAX_ID = 50, 10, 20_000, 1_000


Found = list[list[Passage]]
Run = Callable[[Coroutine[Any, Any, Found]], Awaitable[Found]]


async def _directly(searching: Coroutine[Any, Any, Found]) -> Found:
    return await searching


class Library:
    """An engine, and where it has one, its store of passages. `run` runs its searches, by default where they are
    awaited."""

    def __init__(self, engine: SearchEngine, run: Run = _directly) -> None:
        self._engine, self._run = engine, run
        self._store = engine if isinstance(engine, PassageStore) else None

    @property
    def opens(self) -> bool:
        """Whether passages can be opened by their ids."""
        return self._store is not None

    async def search(self, query: str, k: int) -> Sequence[Passage]:
        """At most k passages, best first. Raises DataError for a query that is empty or too long, ToolError."""
        if not query.strip() or len(query) > MAX_QUERY or not 1 <= k <= MAX_PASSAGES:
            raise DataError(
                f"The query has {len(query):,} characters and k is {k}. Expected a text of at most {MAX_QUERY:,} "
                f"characters, and k from 1 to {MAX_PASSAGES}."
            )
        return (await self._run(search(self._engine, [query], k)))[0]

    def open(self, id: str, neighbours: int) -> Sequence[Passage]:
        """A passage with up to so many of its document before and after it, in the document's order. An id is looked up
        in the index and nowhere else. Raises DataError, also for an id that is not in the index."""
        if self._store is None:
            raise DataError("The engine that is searched does not give passages by their ids. Search instead.")
        if len(id) > MAX_ID or not 0 <= neighbours <= MAX_NEIGHBOURS:
            raise DataError(
                f"The id has {len(id):,} characters and neighbours is {neighbours}. Expected an id that a search gave, "
                f"and neighbours from 0 to {MAX_NEIGHBOURS}."
            )
        try:
            own = self._store.get(id)
        except DataError as error:
            raise DataError("There is no passage with this id. Give an id that a search gave.") from error
        document, _, number = id.rpartition("#")
        if not number.isdecimal():
            return [own]
        near = range(max(0, int(number) - neighbours), int(number) + neighbours + 1)
        passages = [_existing(self._store, f"{document}#{place}") for place in near]
        return [passage for passage in passages if passage and passage.document_id == own.document_id]


def _existing(store: PassageStore, id: str) -> Passage | None:
    try:
        return store.get(id)
    except DataError:
        return None
