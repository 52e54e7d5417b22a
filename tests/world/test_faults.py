"""What befalls a request: by what is asked for and how often, never by the order of arrival."""

from collections import Counter

import pytest
from tests.doubles.faults import Fault, Faults

from evoseek.errors import ConfigError

ASKED = [f"/page-{number}" for number in range(2000)]


def faults(**shares):
    made = Faults("0")
    made.set(shares)
    return made


def test_nothing_happens_until_it_is_turned_on_and_then_as_often_as_told():
    assert not any(map(Faults("0").draw, ASKED))
    drawn = Counter(map(faults(hang=0.2, reset=0.05).draw, ASKED))
    assert drawn[Fault.HANG] / 2000 == pytest.approx(0.2, abs=0.03)
    assert drawn[Fault.RESET] / 2000 == pytest.approx(0.05, abs=0.015)
    assert set(drawn) == {Fault.HANG, Fault.RESET, None}
    assert set(map(faults(captcha=1.0).draw, ASKED)) == {Fault.CAPTCHA}


def test_the_order_of_arrival_does_not_matter_and_asking_again_is_drawn_anew():
    one, other = faults(hang=0.5), faults(hang=0.5)
    first = {asked: one.draw(asked) for asked in ASKED}
    second = {asked: one.draw(asked) for asked in ASKED}
    for asked in reversed(ASKED):
        assert (other.draw(asked), other.draw(asked)) == (first[asked], second[asked])
    failed_once = [asked for asked in ASKED if first[asked]]
    assert sum(second[asked] is None for asked in failed_once) / len(failed_once) == pytest.approx(0.5, abs=0.05)


def test_they_can_be_changed_at_any_time_and_what_is_not_named_is_off():
    changing = faults(hang=1.0)
    assert changing.draw("/") is Fault.HANG
    changing.set({"slow": 1.0})
    assert changing.draw("/") is Fault.SLOW
    changing.set({})
    assert changing.draw("/") is None


@pytest.mark.parametrize(
    "shares", [{"fire": 0.1}, {"hang": -0.1}, {"hang": 1.5}, {"hang": 0.6, "slow": 0.6}, {"hang": float("nan")}]
)
def test_what_is_no_share_of_a_fault_is_refused_and_changes_nothing(shares):
    kept = faults(slow=1.0)
    with pytest.raises(ConfigError):
        kept.set(shares)
    assert kept.draw("/") is Fault.SLOW
