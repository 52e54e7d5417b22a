"""Hand-made rows of steps with and without a signal."""

import pytest

from evoseek.report.metrics import JsonlMetrics, read_metrics
from evoseek.report.signal import SignalMetrics, no_signal


def row(zero, *, role="", reward=0.0, answered=0.0, malformed=0.0, cut=0.0):
    ends = {"answered": answered, "malformed": malformed, "max_tokens": cut}
    named = {"frac_reward_zero_std": zero, "reward": reward} | {f"rollout/stop/{k}": v for k, v in ends.items()}
    return {f"{role}{name}": value for name, value in named.items()}


@pytest.mark.parametrize("rows", [[], [row(1.0)] * 2, [row(1.0), row(0.9), row(1.0)], [row(1.0)] * 3 + [row(0.5)]])
def test_too_few_steps_or_one_with_a_signal_are_no_warning(rows):
    assert no_signal(rows) is None


@pytest.mark.parametrize("role", ["", "solver/"])
def test_the_warning_names_the_shares_and_what_to_do(role):
    words = no_signal([row(1.0, role=role, malformed=0.75, cut=0.25), {"proposer/reward": 1.0}] * 3)
    assert "For 3 steps" in words
    assert "0% were answered, 75% malformed and 25% cut off" in words
    assert "rollout.max_tokens_per_turn" in words
    assert "rollout.max_malformed" in words


def test_who_answers_wrongly_or_is_always_right_is_told_something_else():
    assert "never right" in no_signal([row(1.0, answered=1.0)] * 3)
    assert "harder questions" in no_signal([row(1.0, answered=1.0, reward=1.0)] * 3)


def test_equal_rewards_teach_where_they_are_not_compared_with_those_of_the_group():
    assert no_signal([row(1.0, answered=1.0, reward=0.5)] * 3, relative=False) is None
    assert no_signal([row(1.0, answered=1.0, reward=0.0)] * 3, relative=False)


def test_it_is_said_once_also_to_a_run_that_is_resumed_and_again_after_a_signal(tmp_path):
    said, path = [], tmp_path / "metrics.jsonl"
    for zeros in ([1.0, 1.0], [1.0, 1.0], [1.0, 0.5, 1.0, 1.0, 1.0, 1.0]):
        metrics = SignalMetrics(JsonlMetrics(path), said.append, earlier=read_metrics(path))
        for zero in zeros:
            metrics.write(0, row(zero))
    assert len(said) == 2
    assert len(read_metrics(path)) == 10
