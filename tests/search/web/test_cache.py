"""What is asked once is not asked again: within a process, across processes, for a week; but for errors."""

import asyncio
import subprocess
import sys

import pytest

from evoseek.errors import ConfigError, ToolError
from evoseek.search.web.cache import LEASE_S, WEEK_S, CachedEngine
from evoseek.types import Passage


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
        return CachedEngine(engine, tmp_path / "cache.sqlite", **{"provider": "serper"} | settings)

    return make


def search(engine, *queries, k=2):
    return asyncio.run(engine.search(queries, k))


def test_what_was_found_is_kept_also_for_those_who_come_after(cached):
    engine = Engine()
    cache = cached(engine)
    assert search(cache, "a", "b") == [found("a"), found("b")]
    assert search(cache, "b", "c", "a") == [found("b"), found("c"), found("a")]
    assert [query for query, _ in engine.calls] == ["a", "b", "c"]
    assert cache.counts == {"hits": 2, "misses": 3}
    cache.close()
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
    assert cache._store.rows("SELECT count(*) FROM results") == [(0,)]  # what is too old goes


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
        return await asyncio.wait_for(cache.search(["b"], 2), 5)  # the lease is given back

    assert asyncio.run(run()) == [found("b")]
    assert [query for query, _ in engine.calls] == ["a", "b", "b"]


def test_another_one_waits_for_who_asks_and_asks_itself_when_that_failed(cached):
    engine = Engine(ToolError("down"))
    first, second = cached(engine), cached(engine)

    async def run():
        engine.goes_on = asyncio.Event()
        calls = [asyncio.create_task(cache.search(["a"], 2)) for cache in (first, second)]
        await asyncio.sleep(0.1)
        assert len(engine.calls) == 1
        engine.goes_on.set()
        return await asyncio.gather(*calls, return_exceptions=True)

    failed, result = asyncio.run(run())
    assert (str(failed), result) == ("down", [found("a")])
    assert len(engine.calls) == 2


def test_who_was_killed_while_it_asked_is_waited_for_no_longer_than_its_lease(cached):
    killed, engine, clock = Engine(), Engine(), Clock()

    async def run():
        killed.goes_on = asyncio.Event()  # never
        asyncio.create_task(cached(killed, clock=clock).search(["a"], 2))  # noqa: RUF006
        await asyncio.sleep(0.01)
        call = asyncio.create_task(cached(engine, clock=clock).search(["a"], 2))
        clock.now += LEASE_S - 1
        await asyncio.sleep(0.1)
        assert not engine.calls
        clock.now += 1
        return await asyncio.wait_for(call, 5)

    assert asyncio.run(run()) == [found("a")]


def test_who_still_waits_for_the_answer_keeps_the_lease(cached, monkeypatch):
    monkeypatch.setattr("evoseek.search.web.cache._RENEW_S", 0.001)
    slow, engine, clock = Engine(), Engine(), Clock()

    async def is_renewed(cache):
        while cache._store.rows("SELECT until FROM results") != [(clock.now + LEASE_S,)]:
            await asyncio.sleep(0.001)

    async def run():
        slow.goes_on = asyncio.Event()
        first, second = (cached(one, clock=clock) for one in (slow, engine))
        calls = [asyncio.create_task(first.search(["a"], 2))]
        for _ in range(3):
            clock.now += LEASE_S - 1
            await asyncio.wait_for(is_renewed(first), 10)
        calls.append(asyncio.create_task(second.search(["a"], 2)))
        await asyncio.sleep(0.1)
        slow.goes_on.set()
        return await asyncio.gather(*calls)

    assert asyncio.run(run()) == [[found("a")]] * 2
    assert (len(slow.calls), len(engine.calls)) == (1, 0)


@pytest.mark.parametrize("ahead", [LEASE_S + 1, 3600.0, 10 * WEEK_S])
def test_a_lease_from_before_the_clock_was_set_back_does_not_count(cached, ahead):
    killed, engine, clock = Engine(), Engine(), Clock()

    async def run():
        killed.goes_on = asyncio.Event()  # never
        clock.now += ahead
        asyncio.create_task(cached(killed, clock=clock).search(["a"], 2))  # noqa: RUF006
        await asyncio.sleep(0.01)
        clock.now -= ahead
        return await asyncio.wait_for(cached(engine, clock=clock).search(["a"], 2), 5)

    assert asyncio.run(run()) == [found("a")]


def test_who_still_asks_when_the_clock_is_set_back_takes_nothing_from_who_asks_then(cached):
    first, second, clock = Engine(ToolError("down")), Engine(), Clock()

    async def run():
        first.goes_on, second.goes_on = asyncio.Event(), asyncio.Event()
        slow = asyncio.create_task(cached(first, clock=clock).search(["a"], 2))
        await asyncio.sleep(0.01)
        clock.now -= 3600
        other = asyncio.create_task(cached(second, clock=clock).search(["a"], 2))
        await asyncio.sleep(0.01)
        first.goes_on.set()  # it fails, and gives back its own lease alone
        with pytest.raises(ToolError, match="down"):
            await slow
        third = asyncio.create_task(cached(other_engine := Engine(), clock=clock).search(["a"], 2))
        await asyncio.sleep(0.1)
        second.goes_on.set()
        return await other, await third, len(other_engine.calls)

    assert asyncio.run(run()) == ([found("a")], [found("a")], 0)


PROCESS = """
import asyncio, sys, time
from pathlib import Path
from evoseek.search.web.cache import CachedEngine
from evoseek.types import Passage

class Engine:
    is_local = False

    async def search(self, queries, k):
        with open(sys.argv[2], "a") as log:
            log.write("called\\n")
        await asyncio.sleep(0.5)
        return [[Passage("u", "u", "t", queries[0])]]

cache = CachedEngine(Engine(), Path(sys.argv[1]), provider="p")
async def run():
    return await asyncio.gather(*(cache.search(["a"], 1) for _ in range(20)))
assert asyncio.run(run()) == [[[Passage("u", "u", "t", "a")]]] * 20
"""


def test_several_processes_ask_once(tmp_path):
    command = [sys.executable, "-c", PROCESS, str(tmp_path / "cache"), str(tmp_path / "log")]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert (tmp_path / "log").read_text() == "called\n"


def test_it_is_as_local_as_its_engine_and_keeps_for_some_time(cached):
    engine = Engine()
    assert not cached(engine).is_local
    engine.is_local = True
    assert cached(engine).is_local
    with pytest.raises(ConfigError, match="cannot be kept for 0 seconds"):
        cached(engine, period_s=0)
