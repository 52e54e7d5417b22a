"""A cache of answers, so that no query is paid for twice."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from evoseek.errors import ConfigError, RunError, disk_text
from evoseek.search.web.store import Store, seal, unseal

WEEK_S = 7 * 24 * 3600.0

_POLL_S = 0.05
_SCHEMA = "CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, until REAL NOT NULL, found TEXT) WITHOUT ROWID"


class Cache:
    """Keeps each answer (see `StoredWeb`) for `period_s` seconds in an SQLite file, which several processes may share.
    Errors are not cached, and a damaged answer counts as missing.

    Concurrent requests for the same answer, from this process or another, make a single call and share its answer
    (within a process, also its error). A call is cancelled when nobody waits for it any more.

    The key is (provider, options, the call's): whatever changes an answer must be in one of these, except secrets.
    `counts` has the calls that were `hits` and `misses`.
    """

    def __init__(
        self,
        path: Path,
        *,
        provider: str,
        period_s: float = WEEK_S,
        options: Mapping[str, object] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not period_s > 0:
            raise ConfigError(f"Results cannot be kept for {period_s} seconds. Expected a time above 0.")
        self._period_s, self._clock = period_s, clock
        self._of = (provider, dict(options or {}))
        self._store = Store(path, "evoC", _SCHEMA)
        self._store.change("DELETE FROM results WHERE until <= ?", clock())
        try:
            self._locks = path.with_name(f".{path.name}.lock").open("ab")
        except OSError as error:
            raise RunError(disk_text(error, f"The cache {path} cannot be locked")) from error
        self._under_way: dict[str, _Call] = {}
        self.counts = {"hits": 0, "misses": 0}

    def close(self) -> None:
        """Close the files."""
        self._store.close()
        self._locks.close()

    async def answer(self, key: str, call: Callable[[], Awaitable[str]]) -> str:
        """The cached answer, or that of `call`. Raises what `call` raises."""
        key = json.dumps([*self._of, key], sort_keys=True)
        under_way = self._under_way.get(key)
        if under_way is None:
            under_way = self._under_way[key] = _Call(asyncio.create_task(self._find(key, call)))
        under_way.waiting += 1
        try:
            return await asyncio.shield(under_way.task)
        finally:
            under_way.waiting -= 1
            if not under_way.waiting:
                under_way.task.cancel()  # unless it has ended
                del self._under_way[key]

    async def _find(self, key: str, call: Callable[[], Awaitable[str]]) -> str:
        if (kept := self._kept(key)) is None:
            async with self._locked(key):
                if (kept := self._kept(key)) is None:  # another process may have called meanwhile
                    self.counts["misses"] += 1
                    found, until = await call(), self._clock() + self._period_s
                    row = (key, until, seal(found, key, until))
                    self._store.change("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", *row)
                    return found
        self.counts["hits"] += 1
        return kept

    def _kept(self, key: str) -> str | None:
        """The answer of a key, if there is one that is neither too old nor damaged."""
        rows = self._store.rows("SELECT until, found FROM results WHERE key = ?", key)
        text = unseal(rows[0][1], key, rows[0][0]) if rows else None
        return text if text is not None and rows[0][0] > self._clock() else None

    @asynccontextmanager
    async def _locked(self, key: str) -> AsyncGenerator[None]:
        """Keep other processes from making the same call. The system unlocks when a process ends, however it does."""
        byte = int.from_bytes(hashlib.sha256(key.encode()).digest()[:7])
        while True:
            try:
                fcntl.lockf(self._locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
                break
            except (BlockingIOError, PermissionError):  # systems differ
                await asyncio.sleep(_POLL_S)
        try:
            yield
        finally:
            fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, byte)


@dataclass(slots=True)
class _Call:
    """A call in progress, and the number of its waiting callers."""

    task: asyncio.Task[str]
    waiting: int = 0
