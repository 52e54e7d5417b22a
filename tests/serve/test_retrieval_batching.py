"""Micro-batching: what is searched together, and what a caller gets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from evoseek.serve.connection import BusyError
from evoseek.serve.retrieval import MicroBatcher
from evoseek.types import Passage


class Gate:
    """Finds the query itself; the first search waits until `open` is set."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], int]] = []
        self.open = threading.Event()

    def find(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        self.calls.append((list(queries), k))
        assert self.open.wait(10)
        if "bad" in queries:
            raise ValueError("a bad query")
        return [[Passage(query, query, "", query)] * k for query in queries]


async def begun(gate: Gate, batcher: MicroBatcher) -> asyncio.Task[list[list[Passage]]]:
    first = asyncio.create_task(batcher.search(["first"], 1))
    while not gate.calls:
        await asyncio.sleep(0.001)
    return first


def test_calls_that_wait_are_searched_together_if_they_ask_for_as_many() -> None:
    async def run() -> None:
        gate = Gate()
        batcher = MicroBatcher(gate.find, max_batch=4, max_waiting=100)
        first = await begun(gate, batcher)
        asked = [(["a", "b"], 1), (["c"], 2), (["d"], 1), (["e", "f"], 1), (["g"] * 9, 2)]
        tasks = [asyncio.create_task(batcher.search(*one)) for one in asked]
        await asyncio.sleep(0)
        gate.open.set()
        for (queries, k), found in zip(asked, await asyncio.gather(*tasks), strict=True):
            assert [[passage.id for passage in passages] for passages in found] == [[query] * k for query in queries]
        assert (await first)[0][0].id == "first"
        assert gate.calls[1:] == [(["a", "b", "d"], 1), (["c"], 2), (["e", "f"], 1), (["g"] * 9, 2)]
        assert (batcher.queries, batcher.batches) == (16, 5)

    asyncio.run(run())


def test_a_failure_reaches_those_who_asked_and_nobody_else() -> None:
    async def run() -> None:
        gate = Gate()
        gate.open.set()
        batcher = MicroBatcher(gate.find, max_batch=4, max_waiting=100)
        with pytest.raises(ValueError, match="a bad query"):
            await batcher.search(["bad"], 1)
        assert (await batcher.search(["good"], 1))[0][0].id == "good"

    asyncio.run(run())


def test_too_many_that_wait_are_refused_and_those_who_left_are_not_searched_for() -> None:
    async def run() -> None:
        gate = Gate()
        batcher = MicroBatcher(gate.find, max_batch=4, max_waiting=3)
        first = await begun(gate, batcher)
        left = asyncio.create_task(batcher.search(["left"], 1))
        stays = asyncio.create_task(batcher.search(["stays", "too"], 1))
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await batcher.search(["more"], 1)
        left.cancel()
        gate.open.set()
        assert len(await stays) == 2
        await first
        assert gate.calls[1:] == [(["stays", "too"], 1)]

    asyncio.run(run())
