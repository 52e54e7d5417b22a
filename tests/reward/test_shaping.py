import asyncio
from dataclasses import replace

import pytest

from evoseek.reward.functions import AnswerReward, RewardSettings
from evoseek.reward.shaping import ShapedReward, overlong_penalty, unshaped
from evoseek.types import (
    Invalid,
    Passage,
    Question,
    Scored,
    Segment,
    StopReason,
    ToolCall,
    ToolResult,
    Trajectory,
)


@pytest.mark.parametrize(
    ("length", "penalty"),
    [(0, 0.0), (16, 0.0), (17, -0.25), (18, -0.5), (19, -0.75), (20, -1.0), (21, -1.0), (1000, -1.0)],
)
def test_the_overlong_penalty_by_hand(length: int, penalty: float) -> None:
    """L_max = 20 and L_cache = 4: (16 - length) / 4 between 16 and 20."""
    assert overlong_penalty(length, longest=20) == penalty


def test_the_papers_own_lengths() -> None:
    """L_max = 20,480 and L_cache = 4,096 (section 4.1): half of it is reached 2,048 tokens before the end."""
    assert [overlong_penalty(n, longest=20480) for n in (16384, 18432, 20480)] == [0.0, -0.5, -1.0]


def rollout(answer: str | None, *written: int) -> Trajectory:
    segments = [Segment("prompt", (1,) * 50)]
    for number in written:
        segments += [Segment("action", (2,) * number, (-0.5,) * number), Segment("observation", (3,) * 30)]
    reason = StopReason.MAX_TOKENS if answer is None else StopReason.ANSWERED
    return Trajectory("q/0", Question("q", "?", ("Meri",)), "solver", tuple(segments), (), (), reason, answer)


def shaped(trajectory: Trajectory, metric: str = "exact_match", **own: float) -> Scored:
    outcome = asyncio.run(ShapedReward(AnswerReward(metric), RewardSettings(**own))(trajectory))
    assert isinstance(outcome, Scored)
    return outcome


def test_it_counts_what_the_policy_wrote_in_all_turns_and_nothing_else() -> None:
    right = shaped(rollout("Meri", 10, 8), overlong_max=20)
    assert right == Scored(0.5, {"exact_match": 1.0, "unshaped": 1.0, "overlong": -0.5})
    assert unshaped(right) == 1.0
    cut_off = shaped(rollout(None, 10, 10), overlong_max=20)
    assert (cut_off.reward, unshaped(cut_off)) == (-1.0, 0.0)
    assert unshaped(Scored(0.75)) == 0.75


def test_what_is_off_adds_nothing() -> None:
    assert shaped(rollout(None, 30)) == Scored(0.0, {"exact_match": 0.0})


@pytest.mark.parametrize(
    "own", [{"overlong_max": 20}, {"unanswered_penalty": 0.5}, {"wrong_penalty": 0.5}, {"evidence_weight": 0.5}]
)
def test_a_reward_that_cannot_be_had_stays_invalid(own) -> None:
    failed = Invalid(StopReason.REWARD_FAILED, "The judge is down.")

    async def judge(trajectory: Trajectory) -> Invalid:
        return failed

    reward = ShapedReward(judge, RewardSettings(**own))
    assert asyncio.run(reward(solved(None, ["a"], evidence=["a"]))) == failed
    assert asyncio.run(reward(rollout("Oslo", 30))) == failed


def test_a_wrong_answer_is_better_than_none_and_a_right_one_best() -> None:
    found = [shaped(rollout(answer, 4), unanswered_penalty=0.5) for answer in ("Meri", "Oslo", "", None)]
    assert [outcome.reward for outcome in found] == [1.0, 0.0, 0.0, -0.5]
    assert found[-1] == Scored(-0.5, {"exact_match": 0.0, "unshaped": 0.0, "unanswered": -0.5})


def test_with_the_penalty_for_overlong_rollouts_both_are_added_to_the_same_reward() -> None:
    cut_off = shaped(rollout(None, 18), unanswered_penalty=0.5, overlong_max=20)
    assert cut_off == Scored(-1.0, {"exact_match": 0.0, "unshaped": 0.0, "unanswered": -0.5, "overlong": -0.5})
    assert unshaped(cut_off) == 0.0


def solved(answer: str | None, *searches: list[str], evidence: list[str] | None) -> Trajectory:
    """A solver's rollout whose searches found passages with these ids."""
    results = tuple(
        ToolResult(ToolCall("search", {}), "", tuple(Passage(found, "d", "t", "x") for found in ids))
        for ids in searches
    )
    metadata = {} if evidence is None else {"evidence": evidence}
    reason = StopReason.MALFORMED if answer is None else StopReason.ANSWERED
    return Trajectory("q/0", Question("q", "who ?", ("Meri",), metadata), "solver", (), (), results, reason, answer)


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
    outcome = shaped(solved(answer, *searches, evidence=["a", "b", "c"]), evidence_weight=0.5)
    right = float(answer == "Meri")
    assert outcome == Scored(pytest.approx(reward), {"exact_match": right, "unshaped": right, "evidence": share})


@pytest.mark.parametrize("evidence", [None, []])
def test_a_question_without_evidence_keeps_its_reward(evidence) -> None:
    assert shaped(solved("Meri", ["a"], evidence=evidence), evidence_weight=0.5) == Scored(1.0, {"exact_match": 1.0})


def refusable(answer: str | None, answerable: bool, golden: tuple[str, ...] = ("Meri Tolu",)) -> Trajectory:
    question = Question("q", "?", golden if answerable else (), {} if answerable else {"answerable": False})
    return replace(rollout(answer, 4), question=question)


@pytest.mark.parametrize(
    ("answer", "answerable", "unshaped_reward", "penalty"),
    [
        ("Meri Tolu", True, 1.0, 0.0),
        ("Meri", True, 2 / 3, 0.0),  # partly right by F1
        ("Oslo", True, 0.0, -0.5),
        ("Not found in the documents.", True, 0.0, 0.0),
        (None, True, 0.0, 0.0),  # whose penalty is another one
        ("Not found in the documents.", False, 1.0, 0.0),
        ("Oslo", False, 0.0, -0.5),
        (None, False, 0.0, 0.0),
    ],
)
def test_a_wrong_answer_costs_and_refusing_does_not(answer, answerable, unshaped_reward, penalty) -> None:
    outcome = shaped(refusable(answer, answerable), "f1", wrong_penalty=0.5)
    assert outcome.reward == pytest.approx(unshaped_reward + penalty)
    assert (outcome.parts["wrong"], unshaped(outcome)) == (penalty, pytest.approx(unshaped_reward))


def test_the_penalties_of_a_wrong_answer_and_of_none_are_apart() -> None:
    penalties = {"wrong_penalty": 0.25, "unanswered_penalty": 0.5}
    found = [shaped(refusable(answer, True), **penalties).reward for answer in ("Meri Tolu", "unknown", "Oslo", None)]
    assert found == [1.0, 0.0, -0.25, -0.5]


def test_a_wrong_answer_whose_search_found_evidence_is_wrong() -> None:
    outcome = shaped(solved("Oslo", ["a"], evidence=["a"]), evidence_weight=0.5, wrong_penalty=0.25)
    assert outcome == Scored(0.25, {"exact_match": 0.0, "unshaped": 0.0, "evidence": 1.0, "wrong": -0.25})
