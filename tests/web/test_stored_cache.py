"""What is asked once is not asked again for a week; but for errors."""

import asyncio

import pytest

from evoseek.errors import ToolError
from evoseek.types import Passage
from evoseek.web.stored import WEEK_S, Cache, StoredWeb


def found(query, k=2):
    return [Passage(f"https://x/{query}/{n}", query, query, "text") for n in range(k)]


class Engine:
    """Finds what is asked for, after each of `failures` in turn was raised."""

    is_local = False

    def __init__(self, *failures):
        self.failures, self.calls = list(failures), []
        self.goes_on = None  # what is waited for, if anything

    async def search(self, queries, k):
        (query,) = queries
        self.calls.append((query, k))
        if self.goes_on is not None:
            await self.goes_on.wait()
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        return [found(query, k)]


class Clock:
    now = 1e9

    def __call__(self):
        return self.now


@pytest.fixture
def cached(tmp_path):
    """Makes engines over one file."""

    def make(engine, **settings):
        return StoredWeb(Cache(tmp_path / "cache.sqlite", **{"provider": "serper"} | settings), engine)

    return make


def search(engine, *queries, k=2):
    return asyncio.run(engine.search(queries, k))


def test_what_was_found_is_kept_also_for_those_who_come_after(cached):
    engine = Engine()
    cache = cached(engine)
    assert search(cache, "a", "b") == [found("a"), found("b")]
    assert search(cache, "b", "c", "a") == [found("b"), found("c"), found("a")]
    assert [query for query, _ in engine.calls] == ["a", "b", "c"]
    cache.answers.close()
    assert search(cached(other := Engine()), "a", "it's \ud800") == [found("a"), found("it's \ud800")]
    assert len(other.calls) == 1


def test_each_provider_number_and_set_of_options_has_its_own_results(cached):
    engine = Engine()
    for settings in ({}, {"provider": "brave"}, {"options": {"gl": "fr", "hl": "fr"}}, {"options": {"gl": "de"}}):
        for k in (1, 2):
            assert search(cached(engine, **settings), "a", k=k) == [found("a", k)]
    assert len(engine.calls) == 8
    assert search(cached(engine, options={"hl": "fr", "gl": "fr"}), "a") == [found("a")]  # in any order
    assert len(engine.calls) == 8


def test_results_are_kept_for_a_period(cached):
    engine, clock = Engine(), Clock()
    cache = cached(engine, clock=clock)
    for age, calls in ((0, 1), (WEEK_S - 1, 1), (WEEK_S, 2), (WEEK_S + 1, 2)):
        clock.now = 1e9 + age
        assert search(cache, "a") == [found("a")]
        assert len(engine.calls) == calls
    clock.now += WEEK_S
    cached(engine, clock=clock)
    assert cache.answers._store.rows("SELECT count(*) FROM results") == [(0,)]  # what is too old goes


def test_finding_nothing_is_kept_and_errors_are_not(cached):
    engine = Engine(ToolError("down"))
    cache = cached(engine)
    with pytest.raises(ToolError, match="down"):
        search(cache, "a")
    assert search(cache, "a") == [found("a")]
    for _ in range(2):
        assert search(cache, "a", k=0) == [[]]
    assert len(engine.calls) == 3


def many(cache, engine, count):
    """So many equal queries at once."""

    async def run():
        engine.goes_on = asyncio.Event()
        calls = [asyncio.create_task(cache.search(["a"], 2)) for _ in range(count)]
        await asyncio.sleep(0.01)
        engine.goes_on.set()
        return await asyncio.gather(*calls, return_exceptions=True)

    return asyncio.run(run())


def test_a_thousand_equal_queries_at_once_are_one_call(cached):
    engine = Engine()
    results = many(cached(engine), engine, 1000)
    assert results == [[found("a")]] * 1000
    assert len(engine.calls) == 1
    assert len({id(passages) for (passages,) in results}) == 1000  # nobody's list is another one's


def test_who_waits_for_a_call_that_fails_fails_with_it(cached):
    engine = Engine(ToolError("down"))
    cache = cached(engine)
    assert [str(result) for result in many(cache, engine, 10)] == ["down"] * 10
    assert len(engine.calls) == 1
    assert search(cache, "a") == [found("a")]


def test_a_call_goes_on_for_those_who_still_wait_and_ends_with_the_last(cached):
    engine = Engine()
    cache = cached(engine)

    async def run():
        engine.goes_on = asyncio.Event()
        first, second = (asyncio.create_task(cache.search(["a"], 2)) for _ in range(2))
        await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.sleep(0.01)
        engine.goes_on.set()
        assert await second == [found("a")]
        engine.goes_on = asyncio.Event()
        third = asyncio.create_task(cache.search(["b"], 2))
        await asyncio.sleep(0.01)
        third.cancel()
        with pytest.raises(asyncio.CancelledError):
            await third
        engine.goes_on.set()
        return await asyncio.wait_for(cache.search(["b"], 2), 5)

    assert asyncio.run(run()) == [found("b")]
    assert [query for query, _ in engine.calls] == ["a", "b", "b"]


def test_a_damaged_answer_is_called_for_again(cached):
    engine = Engine()
    cache = cached(engine)
    search(cache, "a")
    cache.answers._store.change("UPDATE results SET found = replace(found, 'text', 'lies')")
    assert search(cache, "a") == [found("a")]
    assert search(cache, "a") == [found("a")]
    assert len(engine.calls) == 2


def test_it_is_as_local_as_its_engine_and_keeps_for_some_time(cached):
    engine = Engine()
    assert not cached(engine).is_local
    engine.is_local = True
    assert cached(engine).is_local
