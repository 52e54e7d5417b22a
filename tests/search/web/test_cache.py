"""What is asked once is not asked again: within a process, across processes, for a week; but for errors."""

import asyncio
import subprocess
import sys

import pytest

from evoseek.errors import ConfigError, ToolError
from evoseek.search.web.cache import WEEK_S, Cache
from evoseek.search.web.store import StoredWeb
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
    assert cache.answers.counts == {"hits": 2, "misses": 3}
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
        return await asyncio.wait_for(cache.search(["b"], 2), 5)  # it is unlocked

    assert asyncio.run(run()) == [found("b")]
    assert [query for query, _ in engine.calls] == ["a", "b", "b"]


PROCESS = """
import asyncio, sys
from pathlib import Path
from evoseek.errors import ToolError
from evoseek.search.web.cache import Cache
from evoseek.search.web.store import StoredWeb
from evoseek.types import Passage

class Engine:
    is_local = False

    async def search(self, queries, k):
        with open(sys.argv[2], "a") as log:
            log.write("called\\n")
        print("called", flush=True)
        await asyncio.sleep(float(sys.argv[3]))
        if sys.argv[4:]:
            raise ToolError("down")
        return [[Passage("u", "u", "t", queries[0])]]

engine = StoredWeb(Cache(Path(sys.argv[1]), provider="p"), Engine())
async def run():
    return await asyncio.gather(*(engine.search(["a"], 1) for _ in range(20)))
assert asyncio.run(run()) == [[[Passage("u", "u", "t", "a")]]] * 20
"""


@pytest.fixture
def process(tmp_path):
    """Begins processes that search through one cache, each with the seconds of its call, and whether it fails."""
    begun = []

    def begin(*arguments):
        command = [sys.executable, "-c", PROCESS, str(tmp_path / "cache"), str(tmp_path / "log"), *arguments]
        begun.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        return begun[-1]

    yield begin
    for one in begun:
        one.kill()
        one.communicate()


def test_several_processes_make_a_single_call(tmp_path, process):
    processes = [process("0.5") for _ in range(3)]
    assert [one.wait() for one in processes] == [0, 0, 0]
    assert (tmp_path / "log").read_text() == "called\n"


@pytest.mark.parametrize("ends", ["fails", "is killed"])
def test_a_process_waits_for_the_call_of_another_one_and_makes_its_own_when_that_has_none(tmp_path, process, ends):
    first = process("1.5", "fails") if ends == "fails" else process("60")
    assert first.stdout.readline() == "called\n"
    second = process("0")
    if ends == "is killed":
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(1)
        first.kill()
    assert second.wait(30) == 0
    assert first.wait() != 0
    assert (tmp_path / "log").read_text() == "called\n" * 2


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
    with pytest.raises(ConfigError, match="cannot be kept for 0 seconds"):
        cached(engine, period_s=0)
