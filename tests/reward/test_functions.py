import asyncio

import pytest

from evoseek.errors import ConfigError
from evoseek.reward.functions import AnswerReward
from evoseek.types import Action, Question, Scored, Segment, StopReason, Trajectory


def trajectory(answer: str | None) -> Trajectory:
    """A rollout whose prompt shows the example answer Paris, and whose last action does too."""
    return Trajectory(
        id="q1/0",
        question=Question("q1", "capital of France ? for example <answer> Paris </answer>", ("Paris",)),
        role="solver",
        segments=(Segment("prompt", (1,)), Segment("action", (2,), (-0.5,))),
        actions=(Action("Paris"),),
        tool_results=(),
        stop_reason=StopReason.MALFORMED if answer is None else StopReason.ANSWERED,
        answer=answer,
    )


@pytest.mark.parametrize(
    ("metric", "answer", "expected"),
    [
        ("exact_match", "paris", 1.0),
        ("exact_match", "in Paris", 0.0),
        ("guarded_substring_match", "in Paris", 1.0),
        ("f1", "in Paris", 2 / 3),
        ("exact_match", "", 0.0),
    ],
)
def test_the_reward_is_the_metric_of_the_answer(metric: str, answer: str, expected: float) -> None:
    outcome = asyncio.run(AnswerReward(metric)(trajectory(answer)))
    assert outcome == Scored(expected, {metric: expected})


def test_trap_no_answer_scores_zero_though_prompt_and_action_text_hold_the_gold() -> None:
    assert asyncio.run(AnswerReward("substring_match")(trajectory(None))) == Scored(0.0, {"substring_match": 0.0})


def test_an_unknown_metric_is_a_config_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'em'.*exact_match.*f1"):
        AnswerReward("em")
