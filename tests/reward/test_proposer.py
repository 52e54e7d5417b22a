import json
from pathlib import Path

import pytest

from evoseek.reward.proposer import difficulty

CASES = json.loads((Path(__file__).parents[1] / "fixtures" / "difficulty.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES)
def test_the_reward_equals_the_reference(case):
    assert difficulty(case["correct"], case["n"]) == pytest.approx(case["reward"], abs=1e-12)


def test_without_two_attempts_nothing_is_between():
    assert [difficulty(0, 0), difficulty(0, 1), difficulty(1, 1)] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("wrong", [(-1, 5), (6, 5)])
def test_more_right_than_attempted_is_refused(wrong):
    with pytest.raises(ValueError, match="cannot be right"):
        difficulty(*wrong)
