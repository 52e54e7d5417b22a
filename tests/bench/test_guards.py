"""What bench/guards.py adds to a loss, and when it calls a reward fallen; numbers by hand."""

import pytest
import torch

from evoseek.loss.base import LossInputs


@pytest.fixture(scope="module")
def guards(script):
    return script("guards")


def inputs(now, before, mask, advantages):
    now, before = torch.tensor([now], requires_grad=True), torch.tensor([before])
    mask, zeros = torch.tensor([mask], dtype=torch.bool), torch.zeros_like(before)
    return LossInputs(now, before, before, torch.tensor([advantages]), mask, torch.ones(1), zeros)


def test_of_right_actions_that_fell_in_sum_each_token_that_fell_counts(guards):
    """Two actions around an observation: -1 and +.5 are a fall, +1 and -.5 are none."""
    given = inputs([-2.0, -0.5, 9.0, -1.0, -1.5], [-1.0, -1.0, 0.0, -2.0, -1.0], [1, 1, 0, 1, 1], [1.0] * 5)
    fallen = guards.fall_of_right_actions(given)
    assert fallen.tolist() == [[1.0, 0.0, 0.0, 0.0, 0.0]]
    fallen.sum().backward()
    assert given.logprobs.grad.tolist() == [[-1.0, 0.0, 0.0, 0.0, 0.0]]


def test_wrong_rollouts_may_fall(guards):
    given = inputs([-2.0, -2.0], [-1.0, -1.0], [1, 1], [-1.0, -1.0])
    assert guards.fall_of_right_actions(given).tolist() == [[0.0, 0.0]]


def test_a_reward_has_fallen_when_five_steps_are_below_half_of_the_best_five(guards):
    rows = [{"reward": reward} for reward in (0.4,) * 6 + (0.0,) * 4]
    assert guards.fell_at(rows) == 9  # .4 .4 .4 .4 .4 .4 0 0 0: .16
    assert guards.fell_at(rows[:8]) == 8  # never: the end
