import asyncio

import pytest

from evoseek.errors import ToolError
from evoseek.search.engines import RetryingEngine, search_others
from evoseek.types import Passage

FOUND = [[Passage("p", "d", "Kalo", "text")]]


class Engine:
    """Fails with each of `failures` in turn, then finds."""

    is_local = True

    def __init__(self, *failures):
        self.failures, self.calls = list(failures), []

    async def search(self, queries, k):
        self.calls.append((tuple(queries), k))
        if self.failures:
            raise self.failures.pop(0)
        return FOUND


def search(engine, attempts=3, wait_s=0.0):
    return asyncio.run(RetryingEngine(engine, attempts, wait_s).search(["kalo"], 3))


def down(number):
    return ToolError(f"the engine is down ({number})")


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_call_that_fails_is_made_again(failures):
    engine = Engine(*map(down, range(failures)))
    assert search(engine) == FOUND
    assert engine.calls == [(("kalo",), 3)] * (failures + 1)


def test_after_the_last_attempt_it_names_the_last_cause():
    engine = Engine(*map(down, range(5)))
    with pytest.raises(ToolError, match=r"each of 3 attempts; the last time: the engine is down \(2\)"):
        search(engine)
    assert len(engine.calls) == 3


def test_waits_double(monkeypatch):
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(ToolError):
        search(Engine(*map(down, range(4))), attempts=4, wait_s=0.5)
    assert waits == [0.5, 1.0, 2.0]


@pytest.mark.parametrize("error", [KeyError("a bug"), asyncio.CancelledError("given up")])
def test_anything_but_a_tool_error_passes_through_at_once(error):
    engine = Engine(error)
    with pytest.raises(type(error)):
        search(engine)
    assert len(engine.calls) == 1


def test_cancelling_ends_a_wait():
    engine = Engine(down(0))

    async def give_up():
        await asyncio.wait_for(RetryingEngine(engine, 3, 60.0).search(["kalo"], 3), 0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(give_up())
    assert len(engine.calls) == 1


def test_it_is_as_local_as_its_engine():
    engine = Engine()
    assert RetryingEngine(engine, 1, 0.0).is_local
    engine.is_local = False
    assert not RetryingEngine(engine, 1, 0.0).is_local


def test_each_query_is_searched_as_deep_as_its_hidden_documents_make_it():
    ranked = [Passage(f"p{place}", f"d{place // 3}", "", "") for place in range(10)]
    calls = []

    class Ranked:
        is_local = True

        async def search(self, queries, k):
            calls.append((*queries, k))
            return [ranked[:k] for _ in queries]

    found = asyncio.run(search_others(Ranked(), ["a", "b", "c"], [{"d0"}, set(), {"d0", "d1", "d2"}], 2))
    assert [[passage.id for passage in one] for one in found] == [["p3", "p4"], ["p0", "p1"], ["p9"]]
    assert calls == [("a", "b", "c", 2), ("a", "c", 4), ("a", "c", 8), ("c", 16)]
