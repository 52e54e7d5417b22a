import asyncio

from evoseek.reward.functions import AnswerReward
from evoseek.reward.overlong import OverlongReward
from evoseek.reward.shaping import unshaped
from evoseek.reward.unanswered import UnansweredReward
from evoseek.types import Invalid, Question, Scored, Segment, StopReason, Trajectory


def rollout(answer: str | None, tokens: int = 4) -> Trajectory:
    segments = (Segment("prompt", (1,)), Segment("action", (2,) * tokens, (-0.5,) * tokens))
    reason = StopReason.MAX_TURNS if answer is None else StopReason.ANSWERED
    return Trajectory("q/0", Question("q", "?", ("Meri",)), "solver", segments, (), (), reason, answer)


def test_a_wrong_answer_is_better_than_none_and_a_right_one_best() -> None:
    reward = UnansweredReward(AnswerReward(), 0.5)
    found = [asyncio.run(reward(rollout(answer))) for answer in ("Meri", "Oslo", "", None)]
    assert [outcome.reward for outcome in found] == [1.0, 0.0, 0.0, -0.5]
    assert found[-1] == Scored(-0.5, {"exact_match": 0.0, "unshaped": 0.0, "unanswered": -0.5})


def test_with_the_penalty_for_overlong_rollouts_both_are_added_to_the_same_reward() -> None:
    reward = OverlongReward(UnansweredReward(AnswerReward(), 0.5), longest=8, cache=4)
    cut_off = asyncio.run(reward(rollout(None, 6)))
    assert cut_off == Scored(-1.0, {"exact_match": 0.0, "unshaped": 0.0, "unanswered": -0.5, "overlong": -0.5})
    assert unshaped(cut_off) == 0.0


def test_a_reward_that_cannot_be_had_stays_invalid() -> None:
    failed = Invalid(StopReason.REWARD_FAILED, "The judge is down.")

    async def judge(trajectory: Trajectory) -> Invalid:
        return failed

    assert asyncio.run(UnansweredReward(judge, 0.5)(rollout(None))) == failed
