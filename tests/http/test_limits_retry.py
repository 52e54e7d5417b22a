"""What is retried, how often, and after which wait."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tenacity import RetryCallState

from evoseek.errors import ToolError
from evoseek.http.limits import RateLimitError, Retry, TransientError, seconds_of


@pytest.mark.parametrize(("repetition", "longest"), [(1, 2.0), (2, 4.0), (3, 5.0), (5000, 5.0)])
def test_the_wait_is_drawn_evenly_up_to_a_limit_that_doubles(repetition, longest):
    state = RetryCallState(None, None, (), {})
    state.attempt_number = repetition
    state.set_exception((ToolError, ToolError("x"), None))
    drawn = [Retry(9, 2.0, 5.0).wait()(state) for _ in range(200)]
    assert 0 <= min(drawn) < 0.1 * longest
    assert 0.9 * longest < max(drawn) <= longest
    assert 0.4 * longest < sum(drawn) / 200 < 0.6 * longest


def test_what_the_server_asks_for_is_waited_on_top():
    state = RetryCallState(None, None, (), {})
    state.set_exception((TransientError, TransientError("busy", 7.0), None))
    assert all(7 <= Retry(9, 0.5, 60.0).wait()(state) <= 7.5 for _ in range(20))


def test_no_more_is_waited_than_allowed_whatever_the_server_asks_for():
    state = RetryCallState(None, None, (), {})
    state.set_exception((TransientError, TransientError("busy", 86_400.0), None))
    assert 3 <= Retry(9, 0.0, 3.0).wait()(state) <= 3


@pytest.mark.parametrize(("repetition", "wait_s"), [(1, 0.5), (2, 1.0), (3, 2.0), (4, 3.0)])
def test_without_jitter_the_wait_just_doubles(repetition, wait_s):
    state = RetryCallState(None, None, (), {})
    state.attempt_number = repetition
    state.set_exception((ToolError, ToolError("x"), None))
    assert Retry(9, 0.5, 3.0, jitter=False).wait()(state) == wait_s


class Calls:
    """A call that fails with each of `failures` in turn, then succeeds."""

    def __init__(self, *failures):
        self.failures, self.made = list(failures), 0

    async def __call__(self):
        self.made += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"


@pytest.mark.parametrize(
    ("failures", "ending", "made"),
    [
        ([], "done", 1),
        ([TransientError("a"), RateLimitError("b")], "done", 3),
        ([TransientError("a"), TransientError("b"), TransientError("c")], TransientError, 3),
        ([ToolError("for good")], ToolError, 1),
        ([TransientError("a"), KeyError("a bug")], KeyError, 2),
        ([TimeoutError("its own")], TimeoutError, 1),
    ],
)
def test_what_may_pass_is_retried_up_to_so_many_times(failures, ending, made):
    call = Calls(*failures)
    if isinstance(ending, str):
        assert asyncio.run(Retry(3, 0.0).run(call)) == ending
    else:
        with pytest.raises(ending) as caught:
            asyncio.run(Retry(3, 0.0).run(call))
        assert caught.value is failures[-1]
    assert call.made == made


def test_which_errors_may_pass_can_be_told():
    assert asyncio.run(Retry(2, 0.0, errors=ToolError).run(Calls(ToolError("down")))) == "done"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7),
        (" 7 ", 7),
        ("0.5", 0.5),
        ("", 0),
        ("-3", 0),
        ("inf", 0),
        ("nan", 0),
        ("1e3", 0),
        ("soon", 0),
        (f"Mon, 01 Jan {9**30} 00:00:00 GMT", 0),
    ],
)
def test_seconds_of_a_number(header, seconds):
    assert seconds_of(header) == seconds


def test_seconds_of_a_date():
    now = datetime.now(UTC)
    assert 95 < seconds_of(format_datetime(now + timedelta(seconds=100), usegmt=True)) <= 100
    assert 95 < seconds_of((now + timedelta(seconds=100)).strftime("%a, %d %b %Y %H:%M:%S")) <= 100
    assert seconds_of(format_datetime(now - timedelta(seconds=100), usegmt=True)) == 0
    elsewhere = now.astimezone(timezone(timedelta(hours=-5)))
    assert 95 < seconds_of(format_datetime(elsewhere + timedelta(seconds=100))) <= 100


@given(st.text() | st.from_regex(r"[0-9]{1,400}|\w{3}, [0-9]{1,3} \w{3} [0-9]{1,6} [0-9:]{1,9}( [+-][0-9]{1,9})?"))
def test_seconds_of_anything(header):
    assert seconds_of(header) >= 0
