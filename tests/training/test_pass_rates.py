import json
from dataclasses import replace

import pytest

from evoseek.errors import RunError
from evoseek.reward.shaping import UNSHAPED
from evoseek.training.question_order import PassRates
from evoseek.types import Scored


def test_rewards_are_counted_by_question_and_kept_as_json(groups_of):
    """q0: right, wrong; q1: wrong, and a rollout that failed."""
    rates = PassRates()
    groups = groups_of({"q0/0": "meri", "q0/1": "kalo", "q1/0": "kalo"})
    rates.observe(1, groups)
    rates.observe(2, groups[:1])
    assert (rates.of("q0"), rates.of("q1"), rates.of("q9")) == ((2.0, 4), (0.0, 1), (0.0, 0))
    assert rates.passes.draw(["q0", "q1"], seed=0, step=3, size=1) is not None
    rates.passes.count(3, ["q0", "q1"])
    again = PassRates()
    again.restore(json.loads(json.dumps(rates.state())))
    assert again == rates
    again.restore({})
    assert again == PassRates()


def test_lengths_and_rewards_out_of_range_do_not_count(groups_of):
    """An overlong right answer is right, a broken format (-1) is wrong, and no more than that."""
    rates = PassRates()
    group = groups_of({f"q0/{n}": "kalo" for n in range(3)}, n=1, group_size=3)[0]
    outcomes = (Scored(0.0, {UNSHAPED: 1.0}), Scored(-1.0), Scored(0.5))
    rates.observe(1, [replace(group, outcomes=outcomes)])
    assert rates.of("q0") == (1.5, 3)


def test_the_state_of_another_version_is_refused():
    with pytest.raises(RunError, match="another version of evoseek"):
        PassRates().restore({"q0": [1.0, 2]})
