import asyncio

import pytest

from evoseek.protocols import RewardFn
from evoseek.reward.evidence import EvidenceReward
from evoseek.reward.functions import AnswerReward
from evoseek.types import Invalid, Outcome, Passage, Question, Scored, StopReason, ToolCall, ToolResult, Trajectory


def solved(answer: str | None, *searches: list[str], evidence: list[str] | None) -> Trajectory:
    """A solver's rollout whose searches found passages with these ids."""
    results = tuple(
        ToolResult(ToolCall("search", {}), "", tuple(Passage(found, "d", "t", "x") for found in ids))
        for ids in searches
    )
    metadata = {} if evidence is None else {"evidence": evidence}
    reason = StopReason.MALFORMED if answer is None else StopReason.ANSWERED
    return Trajectory("q/0", Question("q", "who ?", ("Meri",), metadata), "solver", (), (), results, reason, answer)


def score(trajectory: Trajectory, weight: float, base: RewardFn | None = None) -> Outcome:
    return asyncio.run(EvidenceReward(base or AnswerReward(), weight)(trajectory))


@pytest.mark.parametrize(
    ("answer", "searches", "reward", "share"),
    [
        ("Meri", [["a", "b"], ["c"]], 1.0 + 0.5 * 1, 1.0),
        ("Meri", [["b", "x"], ["b"]], 1.0 + 0.5 / 3, 1 / 3),  # found twice counts once
        ("Jonas", [["x", "a"], ["c"]], 0.5 * 2 / 3, 2 / 3),
        (None, [["c"]], 0.5 / 3, 1 / 3),
        ("Meri", [], 1.0, 0.0),
    ],
)
def test_the_share_of_the_evidence_that_was_found_is_added(answer, searches, reward, share) -> None:
    outcome = score(solved(answer, *searches, evidence=["a", "b", "c"]), 0.5)
    assert outcome == Scored(pytest.approx(reward), {"exact_match": float(answer == "Meri"), "evidence": share})


@pytest.mark.parametrize("evidence", [None, []])
def test_a_question_without_evidence_keeps_its_reward(evidence) -> None:
    assert score(solved("Meri", ["a"], evidence=evidence), 0.5) == Scored(1.0, {"exact_match": 1.0})


def test_a_failed_reward_is_not_made_a_reward() -> None:
    down = Invalid(StopReason.REWARD_FAILED, "the judge is down")

    async def judge(_: Trajectory) -> Outcome:
        return down

    assert score(solved("Meri", ["a"], evidence=["a"]), 0.5, judge) == down
