"""Tool calls on several machines: a pool of Ray actors behind the protocols of an engine and a fetcher (extra: ray)."""

from __future__ import annotations

import asyncio
import json
import os
import textwrap
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, cast

from evoseek.errors import ConfigError, PageError, ToolError
from evoseek.http.pool import CallPool
from evoseek.types import Page, Passage

START_S = 120.0  # for the workers to be up


class RayPool:
    """A `SearchEngine` and a `Fetcher` whose calls run in `workers` processes of Ray, spread over its machines.

    Each worker makes an engine, a fetcher or something that is both: `factory` names a function, as in
    "package.module:function", that every machine can import, and `spec` its arguments, as values for JSON. Nothing but
    plain data passes between the processes.

    A call goes to the worker with the fewest, at most `in_flight` each; the others wait in a queue (`CallPool`, with
    its `waiting` and `deadline_s`). A lost worker is replaced, and its calls are retried by others, each with at most
    `attempts` workers; so a call may be made twice. A cancelled call is cancelled in its worker too.

    Uses the Ray that this process is connected to, or else connects to `address` (None: starts one on this machine),
    and ends in `close` what it started. Raises ConfigError if ray is not installed, if the workers cannot be made, and
    for limits that allow no call.
    """

    is_local = False

    def __init__(
        self,
        factory: str,
        spec: Mapping[str, object],
        *,
        workers: int,
        in_flight: int,
        waiting: int,
        deadline_s: float,
        attempts: int = 3,
        address: str | None = None,
    ) -> None:
        if min(workers, in_flight, attempts) < 1:
            raise ConfigError(
                f"Got {workers} Ray workers with {in_flight} calls at once, each call made {attempts} times. Expected "
                "at least one of each."
            )
        self._pool = CallPool(concurrency=workers * in_flight, waiting=waiting, deadline_s=deadline_s)
        self._factory, self._spec, self._attempts = factory, json.dumps(spec), attempts
        self._ray = _import_ray()
        self._began_ray = not self._ray.is_initialized()
        if self._began_ray:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would send usage reports
            self._ray.init(address=address, include_dashboard=False, log_to_driver=False)
        self._actor = self._ray.remote(
            num_cpus=0, max_restarts=0, max_concurrency=in_flight, scheduling_strategy="SPREAD"
        )(_Worker)
        self._workers = [self._begin() for _ in range(workers)]
        self._check_workers()

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The results of a worker's engine. Raises ToolError."""
        found = await self._pool.run(lambda: self._ask("search", list(queries), k))
        return [[Passage(**fields) for fields in passages] for passages in found]

    async def fetch(self, url: str) -> Page:
        """The page from a worker's fetcher. Raises PageError or ToolError."""
        return Page(**await self._pool.run(lambda: self._ask("fetch", url)))

    def close(self) -> None:
        """End the workers, and Ray if it was started here."""
        for worker in self._workers:
            self._ray.kill(worker.actor)
        if self._began_ray:
            self._ray.shutdown()

    async def _ask(self, method: str, *arguments: object) -> Any:
        """The answer of a worker. Raises PageError or ToolError."""
        lost = ""
        for _ in range(self._attempts):
            worker = min(self._workers, key=lambda worker: worker.calls)
            worker.calls += 1
            try:
                return _opened(await self._call(worker, method, arguments))
            except self._ray.exceptions.RayActorError as error:
                lost = _shortened(error)
                self._replace(worker)
            except self._ray.exceptions.RayError as error:
                raise ToolError(f"Ray could not make a call of {method}: {_shortened(error)}") from error
            finally:
                worker.calls -= 1
        raise ToolError(
            f"A call of {method} was lost with each of {self._attempts} workers of the Ray pool; the last time: {lost} "
            "See Ray's logs for what ended them (often too little memory), or take fewer calls a worker."
        )

    async def _call(self, worker: _Place, method: str, arguments: Sequence[object]) -> Mapping[str, Any]:
        answer = getattr(worker.actor, method).remote(*arguments)
        try:
            return await answer
        except asyncio.CancelledError:
            self._ray.cancel(answer)
            raise

    def _replace(self, lost: _Place) -> None:
        """Replace a worker once, however many calls were lost with it."""
        if lost in self._workers:
            self._ray.kill(lost.actor)  # it may only have been unreachable
            self._workers[self._workers.index(lost)] = self._begin()

    def _begin(self) -> _Place:
        return _Place(self._actor.remote(self._factory, self._spec))

    def _check_workers(self) -> None:
        try:
            self._ray.get([worker.actor.ready.remote() for worker in self._workers], timeout=START_S)
        except self._ray.exceptions.RayError as error:
            self.close()
            raise ConfigError(
                f"The workers of the Ray pool could not be made by {self._factory}: {_shortened(error, 1000)} It has "
                'to be a function, as "package.module:function", that every machine can import and that takes the '
                "given settings."
            ) from error


@dataclass(slots=True, eq=False)
class _Place:
    """A worker, and how many calls it has."""

    actor: Any
    calls: int = 0


class _Worker:
    """What runs in an actor. It answers {"found": ...}, or {"page_error": text} or {"error": text}."""

    def __init__(self, factory: str, spec: str) -> None:
        module, _, name = factory.partition(":")
        self._made = getattr(import_module(module), name)(**json.loads(spec))

    async def ready(self) -> None:
        """Come back once it is made."""

    async def search(self, queries: list[str], k: int) -> Mapping[str, object]:
        async def found() -> object:
            return [[asdict(passage) for passage in passages] for passages in await self._made.search(queries, k)]

        return await _answer(found)

    async def fetch(self, url: str) -> Mapping[str, object]:
        async def found() -> object:
            return asdict(await self._made.fetch(url))

        return await _answer(found)


async def _answer(found: Callable[[], Awaitable[object]]) -> Mapping[str, object]:
    try:
        return {"found": await found()}
    except PageError as error:
        return {"page_error": str(error)}
    except ToolError as error:
        return {"error": str(error)}
    except Exception as error:  # errors of other libraries must not have to be deserialised by the other process
        return {"error": f"A worker of the Ray pool failed with {type(error).__name__}: {error}"}


def _opened(answer: Mapping[str, Any]) -> Any:
    if "page_error" in answer:
        raise PageError(answer["page_error"])
    if "error" in answer:
        raise ToolError(answer["error"])
    return answer["found"]


def _shortened(error: object, length: int = 200) -> str:
    return textwrap.shorten(str(error), length, placeholder="...")


def _import_ray() -> Any:
    try:
        return cast(Any, import_module("ray"))
    except ImportError as error:
        raise ConfigError(
            "A pool of Ray workers needs ray, which is not installed. Install it (pip install 'evoseek[ray]'), or do "
            "without a pool beyond this machine."
        ) from error
