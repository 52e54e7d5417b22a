"""Hand-made rows of steps with and without a signal."""

import pytest

from evoseek.report.metrics import JsonlMetrics, NoMetrics, read_metrics
from evoseek.report.signal import SignalMetrics, fewer_searches, little_signal, no_signal, one_search


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


def steps(number, **metrics):
    """So many rows; a list has a value for each of them."""
    return [
        {name.replace("__", "/"): value[step] if isinstance(value, list) else value for name, value in metrics.items()}
        for step in range(number)
    ]


def test_nearly_no_group_with_a_signal_for_five_steps_is_told_with_what_may_help():
    words = little_signal(steps(5, frac_reward_zero_std=[1.0, 0.9, 0.8, 0.9, 0.9], reward=0.4))
    assert "90% of the groups had no signal" in words
    assert all(
        remedy in words for remedy in ("[[stages]]", "questions.order=difficulty", "learning_rate", "temperature")
    )
    assert little_signal(steps(5, frac_reward_zero_std=[1.0, 0.9, 0.8, 0.9, 0.8], reward=0.4)) is None
    assert little_signal(steps(4, frac_reward_zero_std=1.0, reward=0.4)) is None
    assert "harder questions" in little_signal(steps(5, frac_reward_zero_std=1.0, reward=0.95))


def test_groups_that_are_always_right_or_always_wrong_are_told_the_same():
    words = no_signal([row(1.0, answered=1.0, reward=0.5)] * 3)
    assert "always right or always wrong. What may help: a first stage of hard questions" in words


@pytest.mark.parametrize("role", ["", "solver__"])
def test_searches_that_fall_below_half_of_the_beginning_are_told(role):
    """The first five steps have 2 calls on average; half of it is 1."""
    falling = [2.0, 2.5, 1.5, 2.0, 2.0, 1.5, 1.1, 1.0, 0.9, 0.8, 0.7]
    calls = {f"{role}tools__call_frequency": falling}
    assert fewer_searches(steps(10, **calls)) is None  # 1.06
    assert "make 0.90 tool calls in the last 5 steps, less than half of the 2.00" in fewer_searches(steps(11, **calls))
    assert fewer_searches(steps(11, tools__call_frequency=[0.4] * 5 + [0.0] * 6)) is None  # there was nothing to fall


def of_hops(*, one=1.0, two=1.0, right=0.05):
    return steps(
        5,
        tools__call_frequency__hops_1=one,
        tools__call_frequency__hops_2=two,
        reward__hops_1=0.9,
        reward__hops_2=right,
    )


def test_one_search_for_every_number_of_hops_is_told_where_more_would_be_needed():
    words = one_search(of_hops(two=[1.0, 1.1, 0.9, 1.0, 1.0]))
    assert "also where questions have 2 hops, which were right in 5% at most" in words
    assert "[[stages]]" in words
    assert one_search(of_hops(two=1.3)) is None
    assert one_search(of_hops(right=0.3)) is None
    assert one_search(of_hops()[:4]) is None
    assert one_search(steps(5, tools__call_frequency=1.0, reward=0.0)) is None


def test_a_sign_of_a_collapse_is_said_once_for_each_stage_and_not_at_every_step_around_the_limit():
    said, sink = [], NoMetrics()
    shares = [0.9] * 5 + [0.8, 1.0] * 4  # the mean of five goes to and fro around .9
    metrics = SignalMetrics(sink, said.append)
    for stage in (1.0, 2.0):
        for share in shares:
            metrics.write(0, row(share, reward=0.4, answered=1.0) | {"stage": stage})
    assert len(said) == 2


def test_a_collapse_to_one_search_as_it_was_measured(tmp_path):
    """A mix of one and two hops: by step five no group has a signal, and nothing is searched twice."""
    said, path = [], tmp_path / "metrics.jsonl"
    metrics = SignalMetrics(JsonlMetrics(path), said.append)
    for zero, calls in ((0.6, 1.2), (0.7, 1.1), (0.9, 1.0), (1.0, 1.0), (1.0, 1.0), (0.9, 1.0), (1.0, 1.0)):
        rates = {f"tools/call_frequency/hops_{hops}": calls for hops in (1, 2)}
        metrics.write(0, row(zero, reward=0.5, answered=1.0) | rates | {"reward/hops_1": 0.9, "reward/hops_2": 0.0})
    assert len(said) == 2
    assert "after one search" in said[0]
    assert "90% of the groups had no signal" in said[1]
