"""A cache of search results, so that no query is paid for twice."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evoseek.errors import ConfigError, RunError
from evoseek.protocols import SearchEngine
from evoseek.search.web.gathering import for_each
from evoseek.search.web.store import Store, from_text, seal, to_text, unseal
from evoseek.types import Passage

WEEK_S = 7 * 24 * 3600.0
LEASE_S = 60.0
"""Seconds of the lease by which a calling process keeps others from making the same call; it renews the lease while it
waits for the answer, and others take over if it was killed. A lease for over twice as long was taken before the clock
was set back, and does not count: at most that long one waits."""

_POLL_S = 0.05
_RENEW_S = LEASE_S / 2
_SCHEMA = "CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, until REAL NOT NULL, found TEXT) WITHOUT ROWID"


class CachedEngine:
    """Implements `SearchEngine` over `engine`: each query's results are kept for `period_s` seconds in an SQLite file,
    which several processes may share. Errors are not cached, and a damaged result counts as missing.

    Concurrent requests for the same result, from this process or another, make a single call and share its result
    (within a process, also its error). A call is cancelled when nobody waits for it any more.

    The key is (provider, query, k, options): whatever changes an answer must be in one of these, except secrets.
    `counts` has the queries that were `hits` and `misses`.
    """

    def __init__(
        self,
        engine: SearchEngine,
        path: Path,
        *,
        provider: str,
        period_s: float = WEEK_S,
        options: Mapping[str, object] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not period_s > 0:
            raise ConfigError(f"Results cannot be kept for {period_s} seconds. Expected a time above 0.")
        self._engine, self._period_s, self._clock = engine, period_s, clock
        self._key = (provider, dict(options or {}))
        self._store = Store(path, "evoC", _SCHEMA)
        self._store.change("DELETE FROM results WHERE until <= ?", clock())
        self._under_way: dict[str, _Call] = {}
        self.counts = {"hits": 0, "misses": 0}

    @property
    def is_local(self) -> bool:
        """As for the engine."""
        return self._engine.is_local

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The cached results, or those of the engine. Raises ToolError."""
        return await for_each(queries, lambda query: self._search(query, k))

    async def _search(self, query: str, k: int) -> list[Passage]:
        key = json.dumps([*self._key, query, k], sort_keys=True)
        call = self._under_way.get(key)
        if call is None:
            call = self._under_way[key] = _Call(asyncio.create_task(self._find(key, query, k)))
        call.waiting += 1
        try:
            return list(await asyncio.shield(call.task))
        finally:
            call.waiting -= 1
            if not call.waiting:
                call.task.cancel()  # unless it has ended
                del self._under_way[key]

    async def _find(self, key: str, query: str, k: int) -> list[Passage]:
        while (until := self._lease(key)) is None:
            if (kept := self._kept(key)) is not None:
                self.counts["hits"] += 1
                return from_text(kept)
            await asyncio.sleep(_POLL_S)
        self.counts["misses"] += 1
        asked = asyncio.ensure_future(self._engine.search([query], k))
        try:
            while not (await asyncio.wait([asked], timeout=_RENEW_S))[0]:  # it may have to queue for long
                until = self._renewed(key, until)
            (found,) = asked.result()
        except BaseException:
            asked.cancel()
            self._store.change("DELETE FROM results WHERE key = ? AND until = ? AND found IS NULL", key, until)
            raise
        until = self._clock() + self._period_s
        row = (key, until, seal(to_text(found), key, until))
        self._store.change("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", *row)
        return found

    def _kept(self, key: str) -> str | None:
        """The result of a row. One that is damaged is removed."""
        rows = self._store.rows("SELECT until, found FROM results WHERE key = ? AND found NOT NULL", key)
        if not rows:
            return None
        if (text := unseal(rows[0][1], key, rows[0][0])) is not None:
            return text
        if not self._store.change("DELETE FROM results WHERE key = ? AND until = ?", key, rows[0][0]):
            raise RunError(f"The cache {self._store.path} is damaged. Remove it, or give web.cache another file.")
        return None

    def _lease(self, key: str) -> float | None:
        """When the lease of this process ends; None if there is a result, or another process holds the lease."""
        now = self._clock()
        taken = self._store.change(
            "INSERT INTO results VALUES (?1, ?2, NULL) ON CONFLICT DO UPDATE SET until = ?2, found = NULL "
            "WHERE coalesce(until, 0) <= ?3 OR (found IS NULL AND until > ?4)",
            *(key, now + LEASE_S, now, now + 2 * LEASE_S),  # another process may read the clock earlier and write later
        )
        return now + LEASE_S if taken else None

    def _renewed(self, key: str, until: float) -> float:
        """When the renewed lease ends; unchanged if another process has taken over."""
        later = self._clock() + LEASE_S
        row = "UPDATE results SET until = ? WHERE key = ? AND until = ? AND found IS NULL"
        return later if self._store.change(row, later, key, until) else until


@dataclass(slots=True)
class _Call:
    """A query in progress, and the number of its waiting callers."""

    task: asyncio.Task[list[Passage]]
    waiting: int = 0
