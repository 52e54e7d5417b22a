import asyncio

import pytest
from tests.search.failing import FailingEngine

from evoseek.errors import ToolError
from evoseek.types import Passage


class Echo:
    is_local = True

    async def search(self, queries, k):
        return [[Passage(query, query, query, query)] * k for query in queries]


def fails(engine, query="kalo"):
    try:
        asyncio.run(engine.search([query], 1))
    except ToolError:
        return True
    return False


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_it_fails_in_its_share_of_calls(share):
    """400 calls, within four standard errors."""
    engine = FailingEngine(Echo(), share)
    failures = [fails(engine, str(number)) for number in range(400)]
    assert sum(failures) / 400 == pytest.approx(share, abs=4 * (share * (1 - share) / 400) ** 0.5)
    assert (engine.calls, engine.failures) == (400, sum(failures))


def test_which_calls_fail_follows_from_query_count_and_seed():
    def history(seed, others):
        engine, seen = FailingEngine(Echo(), 0.5, seed), []
        for _ in range(20):
            seen.append(fails(engine))
            for other in range(others):
                fails(engine, f"other {other}")
        return seen

    assert history(0, 0) == history(0, 3)
    assert history(0, 0) != history(1, 0)
    assert {True, False} == set(history(0, 0))


def test_otherwise_it_finds_what_its_engine_does():
    found = asyncio.run(FailingEngine(Echo(), 0.0).search(["a", "b"], 2))
    assert found == asyncio.run(Echo().search(["a", "b"], 2))
    assert FailingEngine(Echo(), 0.0).is_local
