import asyncio

import pytest

from evoseek.reward.functions import AnswerReward
from evoseek.reward.overlong import OverlongReward, overlong_penalty
from evoseek.reward.shaping import unshaped
from evoseek.types import Invalid, Question, Scored, Segment, StopReason, Trajectory


@pytest.mark.parametrize(
    ("length", "penalty"),
    [(0, 0.0), (16, 0.0), (17, -0.25), (18, -0.5), (19, -0.75), (20, -1.0), (21, -1.0), (1000, -1.0)],
)
def test_the_penalty_by_hand(length: int, penalty: float) -> None:
    """L_max = 20 and L_cache = 4: (16 - length) / 4 between 16 and 20."""
    assert overlong_penalty(length, longest=20, cache=4) == penalty


def test_the_papers_own_lengths() -> None:
    """L_max = 20,480 and L_cache = 4,096 (section 4.1): half of it is reached 2,048 tokens before the end."""
    assert [overlong_penalty(n, longest=20480, cache=4096) for n in (16384, 18432, 20480)] == [0.0, -0.5, -1.0]


def rollout(answer: str | None, *written: int) -> Trajectory:
    segments = [Segment("prompt", (1,) * 50)]
    for number in written:
        segments += [Segment("action", (2,) * number, (-0.5,) * number), Segment("observation", (3,) * 30)]
    reason = StopReason.MAX_TOKENS if answer is None else StopReason.ANSWERED
    return Trajectory("q/0", Question("q", "?", ("Meri",)), "solver", tuple(segments), (), (), reason, answer)


def test_it_counts_what_the_policy_wrote_in_all_turns_and_nothing_else() -> None:
    reward = OverlongReward(AnswerReward(), longest=20, cache=4)
    right = asyncio.run(reward(rollout("Meri", 10, 8)))
    assert right == Scored(0.5, {"exact_match": 1.0, "unshaped": 1.0, "overlong": -0.5})
    assert unshaped(right) == 1.0
    cut_off = asyncio.run(reward(rollout(None, 10, 10)))
    assert (cut_off.reward, unshaped(cut_off)) == (-1.0, 0.0)
    assert unshaped(Scored(0.75)) == 0.75


def test_a_reward_that_cannot_be_had_stays_invalid() -> None:
    failed = Invalid(StopReason.REWARD_FAILED, "The judge is down.")

    async def judge(trajectory: Trajectory) -> Invalid:
        return failed

    assert asyncio.run(OverlongReward(judge, longest=20, cache=4)(rollout("Meri", 30))) == failed
