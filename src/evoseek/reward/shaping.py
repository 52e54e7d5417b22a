"""What is added to another reward in training: penalties, and a share for the evidence that was found."""

from __future__ import annotations

from dataclasses import dataclass

from evoseek.corpus.language import is_refusal
from evoseek.corpus.questions import evidence_of, recall
from evoseek.protocols import RewardFn
from evoseek.types import Invalid, Outcome, Scored, Trajectory

UNSHAPED = "unshaped"


def shaped(outcome: Scored, name: str, penalty: float) -> Scored:
    """With a penalty (a number <= 0) added, which is the part `name`; the part `unshaped` is the reward before any."""
    return Scored(outcome.reward + penalty, {**outcome.parts, UNSHAPED: unshaped(outcome), name: penalty})


def unshaped(outcome: Scored) -> float:
    """The reward before all that is added: filters judge a group's rollouts by it."""
    return outcome.parts.get(UNSHAPED, outcome.reward)


def overlong_penalty(length: int, *, longest: int) -> float:
    """DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13), from 0 at `longest - cache` tokens down to -1, where
    the cache is a fifth of `longest` (in the paper 4096 of 20480).

    |y| <= L_max - L_cache      0
    up to L_max                 ((L_max - L_cache) - |y|) / L_cache
    beyond                      -1
    """
    cache = max(1, longest // 5)
    return -min(1.0, max(0, length - (longest - cache)) / cache)


@dataclass(frozen=True, slots=True)
class OverlongReward:
    """Another RewardFn plus `overlong_penalty` of the tokens that the policy wrote in all turns; it is the part
    `overlong`.

    The policy learns that a rollout approaches the limit before it is cut off there, and sound but truncated rollouts
    are distinguished from wrong ones. It fails if longer rollouts are better and the limit is low.
    """

    reward: RewardFn
    longest: int

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        """Score one trajectory. What the other reward cannot score stays Invalid."""
        outcome = await self.reward(trajectory)
        if not isinstance(outcome, Scored):
            return outcome
        penalty = overlong_penalty(trajectory.num_action_tokens, longest=self.longest)
        return shaped(outcome, "overlong", penalty)


@dataclass(frozen=True, slots=True)
class UnansweredReward:
    """Another RewardFn less `penalty` for a trajectory without an answer; it is the part `unanswered`.

    Where the reward of a wrong answer is 0, a rollout that searches until it is cut off earns as much as one that
    answers wrongly, and a policy that learns to search more may forget to answer. (Search-R1's authors found a reward
    of the format of the same use, arXiv 2505.15117, section 3.1.)
    """

    reward: RewardFn
    penalty: float

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        """Score one trajectory. What the other reward cannot score stays Invalid."""
        outcome = await self.reward(trajectory)
        if not isinstance(outcome, Scored):
            return outcome
        return shaped(outcome, "unanswered", -self.penalty if trajectory.answer is None else 0.0)


@dataclass(frozen=True, slots=True)
class WrongReward:
    """Another RewardFn less `penalty` for a wrong answer, one that earns nothing and is no refusal; it is the part
    `wrong`.

    A right answer then earns 1, and so does refusing a question that the documents do not answer; refusing another one
    earns 0, and a wrong answer less, so that answering pays only where it is right often enough: with a share of right
    answers above penalty / (1 + penalty). It fails if the policy cannot yet answer, since it then learns to refuse.
    """

    reward: RewardFn
    penalty: float

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        """Score one trajectory. What the other reward cannot score stays Invalid."""
        outcome = await self.reward(trajectory)
        if not isinstance(outcome, Scored):
            return outcome
        answer = trajectory.answer
        is_wrong = answer is not None and not is_refusal(answer) and unshaped(outcome) <= 0.0
        return shaped(outcome, "wrong", -self.penalty if is_wrong else 0.0)


@dataclass(frozen=True, slots=True)
class EvidenceReward:
    """Another RewardFn plus `weight` times the part `evidence`, the share in [0, 1] of the question's evidence
    (`evidence_of`) that the trajectory's searches found.

    The answer alone shows only that something was wrong; this shows which search of a failed rollout was right, so that
    a second search that is hardly ever followed by a right answer is learnt, and guessing is worth less beside it. In
    self-play the evidence is the proposer's path, which is known at no cost. It fails if the evidence does not fit the
    question: it then rewards searching for it instead of answering. Searches beyond cost nothing. Questions without
    evidence, and Invalid outcomes, stay as they are.
    """

    reward: RewardFn
    weight: float

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        """Score one trajectory."""
        outcome = await self.reward(trajectory)
        passages = (passage for result in trajectory.tool_results for passage in result.passages)
        share = recall(evidence_of(trajectory.question), passages)
        if isinstance(outcome, Invalid) or share is None:
            return outcome
        parts = {**outcome.parts, UNSHAPED: unshaped(outcome), "evidence": share}
        return Scored(outcome.reward + self.weight * share, parts)
