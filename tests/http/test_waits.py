"""How long a server is left alone before it is asked again."""

from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tenacity import RetryCallState

from evoseek.errors import ToolError
from evoseek.http.waits import PassingError, back_off, seconds_of


@pytest.mark.parametrize(("repetition", "longest"), [(1, 2.0), (2, 4.0), (3, 5.0), (5000, 5.0)])
def test_the_wait_is_drawn_evenly_up_to_a_limit_that_doubles(repetition, longest):
    state = RetryCallState(None, None, (), {})
    state.attempt_number = repetition
    state.set_exception((ToolError, ToolError("x"), None))
    drawn = [back_off(2.0, 5.0)(state) for _ in range(200)]
    assert 0 <= min(drawn) < 0.1 * longest
    assert 0.9 * longest < max(drawn) <= longest
    assert 0.4 * longest < sum(drawn) / 200 < 0.6 * longest


def test_what_the_server_asks_for_is_waited_on_top():
    state = RetryCallState(None, None, (), {})
    state.set_exception((PassingError, PassingError("busy", 7.0), None))
    assert all(7 <= back_off(0.5, 60.0)(state) <= 7.5 for _ in range(20))


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
