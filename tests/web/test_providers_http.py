"""The limits of calls to providers, against a real server. What `Server` does is shown in tests/chat/test_endpoint.py;
here is what they add."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest
from tests.raising import raises

from evoseek.errors import ToolError
from evoseek.web.providers import CallLimits, JsonApi, WebEngine
from evoseek.web.settings import WebSettings

http = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "chat" / "chat_server.py")))
KEY = "secret-key"
FINE = http.replies(b'{"found": []}')
FAST = {"rate_per_s": 1e4, "wait_s": 0.001, "max_wait_s": 0.01, "attempts": 3, "timeout_s": 5.0}


def engine_of(url, **limits):
    api = JsonApi(url, "found", method="POST", key_header="X-API-KEY")
    return WebEngine("serper", api, api_key=KEY, limits=CallLimits(**FAST | limits))


def get(engine):
    return engine.search(["kalo"], 3)


def outcome(*behaviours, **limits):
    """The results or the error's text, and how often the server was asked."""
    with http.ChatServer(*behaviours) as server:
        engine = engine_of(server.url, **limits)
        try:
            said = asyncio.run(get(engine))
        except ToolError as error:
            said = str(error)
            assert said.startswith(f"There is no answer of the search provider serper at {server.url}: ")
            assert KEY not in said
        assert engine.calls == len(server.received)
        return said, engine.calls


async def failures(engine, count):
    """The texts of so many failing calls, made at once."""
    results = await asyncio.gather(*(get(engine) for _ in range(count)), return_exceptions=True)
    assert all(isinstance(result, ToolError) for result in results)
    return [str(result) for result in results]


@pytest.mark.parametrize("behaviour", [http.fails(429), http.fails(503), http.cuts(60), http.replies(b"{")])
def test_what_may_pass_is_tried_again(behaviour):
    assert outcome(behaviour, behaviour, FINE) == ([[]], 3)
    said, calls = outcome(behaviour)
    assert "each of 3 attempts failed" in said
    assert calls == 3


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 432])
def test_a_refusal_is_one_at_once_and_says_what_to_do(status):
    said, calls = outcome(http.fails(status, f"bad key {KEY}"))
    assert f"status {status}: 'bad key ***'. This is not retried. Correct the key, the url" in said
    assert calls == 1


def test_only_so_many_requests_a_second_and_waiting_for_ones_turn_is_not_part_of_an_attempts_time():
    async def six(engine):
        started = time.perf_counter()
        await asyncio.gather(*(get(engine) for _ in range(6)))
        return time.perf_counter() - started

    with http.ChatServer(FINE) as server:
        took = asyncio.run(six(engine_of(server.url, rate_per_s=5.0, timeout_s=0.8)))
    assert 0.99 < took < 5


def test_a_rate_below_one_a_second():
    async def twice(engine):
        await get(engine)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(get(engine), 0.1)

    with http.ChatServer(FINE) as server:
        asyncio.run(twice(engine_of(server.url, rate_per_s=0.1)))
    assert len(server.received) == 1


def test_the_budget_counts_every_request_over_the_engines_life():
    said, calls = outcome(http.fails(500), budget=2)
    assert "the budget of 2 requests is spent. Raise web.budget" in said
    assert calls == 2
    with http.ChatServer(FINE) as server:
        engine = engine_of(server.url, budget=2)
        for _ in range(2):
            asyncio.run(get(engine))
        with raises("web.budget", match="the budget of 2 requests is spent"):
            asyncio.run(get(engine))


def test_while_a_provider_is_down_calls_fail_at_once_and_with_the_cause_until_it_is_up():
    """The pause and the waits are the defaults but for their length."""

    async def down(engine):
        started = time.perf_counter()
        said = await failures(engine, 40)
        assert engine.breaker.is_open
        assert time.perf_counter() - started < 5
        return said

    with http.ChatServer(FINE) as server:
        engine = engine_of(server.url, failures=20, pause_s=0.5, wait_s=0.5)
    said = asyncio.run(down(engine))
    assert all("it is not called, since its last" in text and "ConnectError" in text for text in said)
    assert 20 <= engine.calls <= 20 + 32  # those that were under way
    calls = engine.calls
    asyncio.run(failures(engine, 100))
    assert engine.calls == calls
    with http.ChatServer(FINE) as server:
        time.sleep(0.5)
        engine._api = replace(engine._api, url=server.url)
        assert asyncio.run(get(engine)) == [[]]
    assert not engine.breaker.is_open


def test_a_provider_that_accepts_and_hangs_is_taken_for_down_after_one_time_limit_and_not_after_all_attempts():
    async def run(url):
        engine = engine_of(url, failures=10, timeout_s=0.5, attempts=4, wait_s=0.1, max_wait_s=0.1)
        started, calls = time.perf_counter(), asyncio.create_task(failures(engine, 40))
        while not engine.breaker.is_open:
            await asyncio.sleep(0.01)
        assert 0.5 <= time.perf_counter() - started < 4 * 0.5
        return await calls, engine.calls

    with http.ChatServer(http.sleeps) as server:
        said, calls = asyncio.run(run(server.url))
    assert all("it is not called, since its last" in text and "not replied in 0.5 seconds" in text for text in said)
    assert calls <= 2 * 32  # of 40 calls, with four attempts each: those that were under way, and few of their second


def test_by_the_defaults_it_is_taken_for_down_within_five_seconds():
    """The requests that open the breaker are made at the allowed rate, and the last of them is then waited for."""
    limits, usual = CallLimits(), WebSettings()
    assert min(limits.concurrency, usual.concurrency) >= limits.failures
    assert (limits.failures - 1) / min(limits.rate_per_s, usual.rate_per_s) + limits.timeout_s < 5


def test_a_crowd_that_comes_after_the_pause_makes_one_trial():
    async def crowd(engine):
        await failures(engine, 1)
        await asyncio.sleep(0.2)
        return await failures(engine, 20)

    with http.ChatServer(http.fails(503)) as server:
        engine = engine_of(server.url, failures=1, pause_s=0.2, attempts=1, timeout_s=2.0)
        assert len(asyncio.run(crowd(engine))) == 20
    assert (engine.calls, engine.breaker.is_open) == (1 + 1, True)


def test_it_fails_at_once_too_when_all_places_are_taken_by_calls_that_wait():
    async def run(url):
        engine = engine_of(url, concurrency=1, failures=1, wait_s=1e6, max_wait_s=1e6)
        first = asyncio.create_task(get(engine))
        while not engine.breaker.is_open:
            await asyncio.sleep(0.001)
        assert "is not called" in (await asyncio.wait_for(failures(engine, 1), 1))[0]
        first.cancel()

    with http.ChatServer(http.fails(500)) as server:
        asyncio.run(run(server.url))
