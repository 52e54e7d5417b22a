"""The proposer's reward: the difficulty of its question for the solver, and the quality of its format.

With k of n attempts right, p = k / n. Where answers are graded (by F1), k counts those that are nearly right, from a
threshold on, and `failure` uses the mean of the solver's reward instead of p:

    linear        (n - k) / (n - 1) if 0 < k < n, else 0      Dr. Zero (arXiv 2601.07055), eq. 4
    parabolic     4 p (1 - p)                                 its ablation
    uncertainty   1 - 2 |p - 1/2|                             R-Zero (arXiv 2508.05004)
    between       1 if 0 < k < n, else 0                      SQLM (arXiv 2508.03682)
    failure       1 - p                                       Search Self-play (arXiv 2510.18821)

Of Dr. Zero's parabola it is only said that it peaks near p = 1/2; 4 p (1 - p) is ours, with the same greatest value as
the linear reward. Only `failure` rewards most what nobody can answer: it needs verified questions.

Attempts that failed for reasons outside the solver are no attempts: leave them out of both numbers, or an outage is
rewarded. Of fewer attempts the mean of `failure` is the same, but not that of the others: with p = 0.1, `linear` is
worth 0.39 on average for five attempts and 0.18 for two.

An outage is rewarded all the same if many attempts fail: attempts that search less survive more often, and are wrong
more often. So a question gets no reward at all if too large a share of its attempts failed, retried ones included.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from evoseek.errors import TrainingError
from evoseek.reward.format import format_score
from evoseek.text.normalization import RIGHT_FROM
from evoseek.types import Invalid, Outcome, Scored, Trajectory, TrajectoryGroup


def difficulty(correct: float, attempts: int) -> float:
    """Dr. Zero's difficulty reward, in [0, 1]; 0 for fewer than two attempts, for which 0 < k < n is impossible.

    The hardest question that the solver can still answer has difficulty 1; one that it always or never answers, 0.
    """
    return (attempts - correct) / (attempts - 1) if 0 < correct < attempts else 0.0


def parabolic(correct: float, attempts: int) -> float:
    """In [0, 1], and 1 where half of the attempts are right."""
    return 4 * correct * (attempts - correct) / attempts**2 if attempts else 0.0


def uncertainty(correct: float, attempts: int) -> float:
    """R-Zero's, in [0, 1], and 1 where half of the attempts are right; 0 without attempts."""
    return 1 - abs(2 * correct - attempts) / attempts if attempts else 0.0


def between(correct: float, attempts: int) -> float:
    """SQLM's: 1 if some attempts are right and some wrong, else 0."""
    return float(0 < correct < attempts)


def failure(correct: float, attempts: int) -> float:
    """Search Self-play's, in [0, 1]: share of wrong attempts, or 1 - the mean reward where `correct` is the sum of
    graded rewards; 0 without attempts."""
    return (attempts - correct) / attempts if attempts else 0.0


DIFFICULTIES: Mapping[str, Callable[[float, int], float]] = {
    "linear": difficulty,
    "parabolic": parabolic,
    "uncertainty": uncertainty,
    "between": between,
    "failure": failure,
}


@dataclass(frozen=True, slots=True)
class ProposerReward:
    """difficulty + format_weight * f for a valid proposal, `rejected_reward` for a rejected one.

    f is the format score in [0, 1] of proposals from a passage (others have none; weight 0 asks for none), so that the
    weight 0.5 gives Dr. Zero's reward, from 0 to 1.5. The part `success` of an attempt's outcome, in [0, 1], says how
    right its answer is: `failure` is 1 - the mean of these, and for the others an attempt is right if it is at least
    `right_from`. Above the share `max_failed` of failed attempts there is no outcome. Raises TrainingError for a part
    that is not in [0, 1]: a question would be worth more the worse its answers are.
    """

    difficulty: str = "linear"
    format_weight: float = 0.5
    rejected_reward: float = 0.0
    success: str = "exact_match"
    right_from: float = RIGHT_FROM
    max_failed: float = 0.2

    def __call__(
        self, proposal: Trajectory, *, rejected: str | None = None, solvers: TrajectoryGroup | None = None
    ) -> Outcome:
        """The outcome of a proposal that is not itself Invalid. Without `solvers` the question has no rollouts yet:
        then only its format counts.

        Invalid, with their most frequent reason, if more than `max_failed` of the attempts failed, of which those that
        were rolled out again are others; or if one of the group still is, but for `failure`: the difficulty of the
        others would be another one's on average.
        """
        if rejected is not None:
            return Scored(self.rejected_reward, {f"rejected/{rejected}": 1.0})
        parts: dict[str, float] = {}
        is_graded = self.difficulty == "failure"
        if solvers is not None:
            failed = [outcome for outcome in solvers.outcomes if isinstance(outcome, Invalid)]
            valid = [outcome for outcome in solvers.outcomes if isinstance(outcome, Scored)]
            every = [*failed, *(failure for _, failure in solvers.replaced)]
            attempts = len(solvers.outcomes) + len(solvers.replaced)
            missing = failed and not (valid and is_graded)  # a mean does not depend on their number
            if missing or len(every) > self.max_failed * attempts:
                return _undecided(every, attempts)
            values = [outcome.parts[self.success] for outcome in valid]
            if wrong := [value for value in values if not 0 <= value <= 1]:
                raise TrainingError(
                    f"The reward {self.success} gave {wrong[0]:g} for an attempt at a question, but a proposer is paid "
                    "by rewards from 0 for a wrong answer to 1 for a right one. Give it these bounds."
                )
            right = math.fsum(values) if is_graded else sum(value >= self.right_from for value in values)
            parts = {
                "difficulty": DIFFICULTIES[self.difficulty](right, len(valid)),
                "solver/mean": fmean(values) if values else 0.0,
                "solver/valid": float(len(valid)),
                "solver/invalid": float(len(failed)),
            }
        task = proposal.question.task
        if self.format_weight and task is not None and task.passage is not None:
            parts["format"] = format_score(proposal).value
        return Scored(parts.get("difficulty", 0.0) + self.format_weight * parts.get("format", 0.0), parts)


def _undecided(failed: Sequence[Invalid], attempts: int) -> Invalid:
    """No difficulty: the first of the most frequent failures, and how many there were."""
    reason, _ = Counter(outcome.reason for outcome in failed).most_common(1)[0]
    detail = next(outcome.detail for outcome in failed if outcome.reason == reason)
    return Invalid(reason, f"{len(failed)} of {attempts} of the solver's attempts failed: {detail or 'no detail'}")
