"""Additions to another reward in training: a share for the evidence found, and penalties."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from evoseek.protocols import RewardFn
from evoseek.questions.questions import evidence_of, recall
from evoseek.reward.functions import RewardSettings
from evoseek.text.language import is_refusal
from evoseek.types import Invalid, Outcome, Scored, Trajectory

UNSHAPED = "unshaped"


def unshaped(outcome: Scored) -> float:
    """Return the reward before all additions: filters judge a group's rollouts by it."""
    return outcome.parts.get(UNSHAPED, outcome.reward)


def overlong_penalty(length: int, *, longest: int) -> float:
    """Return DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13), from 0 at `longest - cache` tokens down to -1;
    the cache is a fifth of `longest` (in the paper 4096 of 20480).

    |y| <= L_max - L_cache      0
    up to L_max                 ((L_max - L_cache) - |y|) / L_cache
    beyond                      -1
    """
    cache = max(1, longest // 5)
    return -min(1.0, max(0, length - (longest - cache)) / cache)


@dataclass(frozen=True, slots=True)
class ShapedReward:
    """A RewardFn that adds terms to another one, each in a part of the outcome; the part `unshaped` is the reward
    before. What the other reward cannot score stays Invalid.

    evidence    `evidence_weight` times this share in [0, 1] of the question's evidence (`evidence_of`) that the
                searches found. The answer alone shows only that something was wrong; this shows which search of a
                failed rollout was right, so that a second search that is hardly ever followed by a right answer is
                learnt, and guessing is worth less beside it. In self-play the evidence is the proposer's path, which is
                known at no cost. It fails if the evidence does not fit the question: it then rewards searching for it
                instead of answering. Searches beyond cost nothing; a question without evidence has no such part.
    wrong       minus `wrong_penalty` for a wrong answer, one that earns nothing and is no refusal. A right answer then
                earns 1, and so does refusing a question that the documents do not answer; refusing another one earns 0,
                and a wrong answer less, so that answering pays only where it is right often enough: with a share of
                right answers above penalty / (1 + penalty). It fails if the policy cannot yet answer, since it then
                learns to refuse.
    unanswered  minus `unanswered_penalty` without an answer. Where the reward of a wrong answer is 0, a rollout that
                searches until it is cut off earns as much as one that answers wrongly, and a policy that learns to
                search more may forget to answer. (Search-R1's authors found a reward of the format of the same use,
                arXiv 2505.15117, section 3.1.)
    overlong    `overlong_penalty` of the tokens that the policy wrote in all turns, up to `overlong_max`. The policy
                learns that a rollout approaches the limit before it is cut off there, and sound but truncated rollouts
                are distinguished from wrong ones. It fails if longer rollouts are better and the limit is low.
    """

    reward: RewardFn
    settings: RewardSettings

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        outcome = await self.reward(trajectory)
        if isinstance(outcome, Invalid):
            return outcome
        reward, parts = outcome.reward, dict(outcome.parts)
        for name, part, weight in self._terms(trajectory, unshaped(outcome)):
            parts |= {UNSHAPED: unshaped(outcome), name: part}
            reward += weight * part
        return Scored(reward, parts)

    def _terms(self, trajectory: Trajectory, earned: float) -> Iterator[tuple[str, float, float]]:
        """Yield the name, part and weight of each active term, for an answer that earned `earned`."""
        own, answer = self.settings, trajectory.answer
        if own.evidence_weight:
            share = recall(evidence_of(trajectory.question), trajectory.passages)
            if share is not None:
                yield "evidence", share, own.evidence_weight
        if own.wrong_penalty:
            is_wrong = answer is not None and not is_refusal(answer) and earned <= 0.0
            yield "wrong", -own.wrong_penalty if is_wrong else 0.0, 1.0
        if own.unanswered_penalty:
            yield "unanswered", -own.unanswered_penalty if answer is None else 0.0, 1.0
        if own.overlong_max is not None:
            yield "overlong", overlong_penalty(trajectory.num_action_tokens, longest=own.overlong_max), 1.0
