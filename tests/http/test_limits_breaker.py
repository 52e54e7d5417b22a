"""When a provider is left alone, and when it is tried again."""

import asyncio

import pytest
from tests.raising import raises

from evoseek.errors import ToolError
from evoseek.http.limits import CircuitBreaker, RateLimitError, TransientError


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def outcome(breaker, error=None):
    """What becomes of a call that ends so."""
    try:
        with breaker.call():
            if error is not None:
                raise error
    except (ToolError, TransientError, asyncio.CancelledError) as raised:
        return raised


DOWN = TransientError("no route")


def open_breaker():
    clock = Clock()
    breaker = CircuitBreaker(3, 10.0, clock)
    for _ in range(3):
        assert outcome(breaker, DOWN) is DOWN
    return breaker, clock


def test_it_opens_after_so_many_failures_in_a_row_and_then_names_the_cause_at_once():
    breaker, clock = open_breaker()
    assert breaker.is_open
    clock.now += 4
    assert "its last 3 calls failed; the last time no route. It is tried again in 6 s" in str(outcome(breaker))
    with raises("server.paused", match="no route"):
        breaker.check()


@pytest.mark.parametrize("ending", [None, ToolError("401"), RateLimitError("429")])
def test_whatever_shows_that_the_server_is_up_begins_a_new_row(ending):
    breaker = CircuitBreaker(3, 10.0)
    for _ in range(3):
        outcome(breaker, DOWN)
        outcome(breaker, DOWN)
        outcome(breaker, ending)
        assert not breaker.is_open


def test_a_cancelled_call_says_nothing():
    breaker = CircuitBreaker(2, 10.0)
    outcome(breaker, DOWN)
    outcome(breaker, asyncio.CancelledError())
    assert not breaker.is_open
    outcome(breaker, DOWN)
    assert breaker.is_open


def test_after_a_pause_one_trial_is_let_through_and_closes_it():
    breaker, clock = open_breaker()
    clock.now += 10
    with breaker.call():
        assert "is not called" in str(outcome(breaker))  # only one
    assert not breaker.is_open
    assert outcome(breaker) is None


@pytest.mark.parametrize("ending", [DOWN, asyncio.CancelledError()])
def test_a_trial_that_fails_or_is_given_up_is_followed_by_another_pause(ending):
    breaker, clock = open_breaker()
    clock.now += 10
    assert outcome(breaker, ending) is ending
    clock.now += 9.9
    assert "is not called" in str(outcome(breaker))
    clock.now += 0.1
    assert outcome(breaker) is None


def test_a_call_that_began_before_it_opened_does_not_put_off_the_trial():
    breaker = CircuitBreaker(1, 10.0, clock := Clock())
    earlier = breaker.call()
    earlier.__enter__()
    outcome(breaker, DOWN)
    clock.now += 9
    assert not earlier.__exit__(TransientError, DOWN, None)
    clock.now += 1
    assert outcome(breaker) is None


def test_a_call_that_comes_during_a_trial_waits_for_its_end():
    async def run(fails: bool) -> None:
        breaker = CircuitBreaker(failures=1, pause_s=0.0)
        with pytest.raises(TransientError), breaker.call():
            raise TransientError("down")
        breaker._pause_s = 60.0
        ended = asyncio.Event()

        async def trial():
            with breaker.call():
                await ended.wait()
                if fails:
                    raise TransientError("still down")

        tasks = asyncio.create_task(trial()), asyncio.create_task(breaker.ready())
        await asyncio.sleep(0.1)
        assert not tasks[1].done()
        ended.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == ([TransientError, ToolError] if fails else [type(None)] * 2)

    for fails in (False, True):
        asyncio.run(run(fails))
