"""An engine whose later pages are kept: the policy sees what it saw before, and the engine is asked once."""

import asyncio

import pytest

from evoseek.errors import ToolError
from evoseek.search.failing import FailingEngine
from evoseek.search.paging import PagingEngine
from evoseek.types import Passage


class Numbered:
    """Finds passages 1, 2, ... of each query, as many as asked for but no more than five."""

    is_local = True

    def __init__(self):
        self.calls = []

    async def search(self, queries, k):
        self.calls.append((list(queries), k))
        return [[Passage(f"{query}{i}", query, query, str(i)) for i in range(1, min(k, 5) + 1)] for query in queries]


def ids(passages):
    return [passage.id for passage in passages]


def test_the_first_page_is_given_and_all_are_kept():
    inner = Numbered()
    engine = PagingEngine(inner, 3)
    found = asyncio.run(engine.search(["a", "b"], 2))
    assert [ids(passages) for passages in found] == [["a1", "a2"], ["b1", "b2"]]
    assert [ids(page) for page in engine.pages_of("b")] == [["b1", "b2"], ["b3", "b4"], ["b5"]]
    assert inner.calls == [(["a", "b"], 6)]
    assert engine.queries == 2
    assert engine.is_local


def test_an_engine_that_fails_is_passed_on_and_nothing_is_kept():
    engine = PagingEngine(FailingEngine(Numbered(), failing=1.0), 2)
    with pytest.raises(ToolError):
        asyncio.run(engine.search(["a"], 2))
    with pytest.raises(KeyError):
        engine.pages_of("a")
