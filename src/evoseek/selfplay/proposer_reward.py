"""The proposer's reward: the difficulty of its question for the solver, and the quality of its format.

With k of n attempts right, p = k / n. If answers are graded (by F1), k counts attempts above a threshold, and `failure`
uses the mean of the solver's reward instead of p:

    linear        (n - k) / (n - 1) if 0 < k < n, else 0      Dr. Zero (arXiv 2601.07055), eq. 4
    parabolic     4 p (1 - p)                                 its ablation
    uncertainty   1 - 2 |p - 1/2|                             R-Zero (arXiv 2508.05004)
    between       1 if 0 < k < n, else 0                      SQLM (arXiv 2508.03682)
    failure       1 - p                                       Search Self-play (arXiv 2510.18821)

The paper says of Dr. Zero's parabola only that it peaks near p = 1/2; 4 p (1 - p) is ours, with the same maximum as the
linear reward. Only `failure` rewards unanswerable questions most, so it needs verified questions.

Leave attempts that failed outside the solver out of both numbers, or an outage is rewarded. With fewer attempts the
mean of `failure` stays the same, but the others change: with p = 0.1, `linear` averages 0.39 for five attempts and 0.18
for two.

An outage is still rewarded if many attempts fail: attempts that search less survive more often, and are wrong more
often. So a question gets no reward if too large a share of its attempts failed, retries included.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from evoseek.errors import TrainingError
from evoseek.rollout.environments import task_of
from evoseek.selfplay.filters import is_valid_search, stands_in, stated
from evoseek.text.normalization import RIGHT_FROM, normalise
from evoseek.types import Invalid, Outcome, Scored, Trajectory, TrajectoryGroup

_FEW_WORDS, _MANY_WORDS = 5, 10  # of an answer
_TAG = re.compile(r"</?(?:think|search|tool_call|question|answer)>")


def difficulty(correct: float, attempts: int) -> float:
    """Return Dr. Zero's difficulty reward, in [0, 1]; 0 for fewer than two attempts, where 0 < k < n is impossible.

    The hardest question that the solver can still answer has difficulty 1; one that is always or never answered, 0.
    """
    return (attempts - correct) / (attempts - 1) if 0 < correct < attempts else 0.0


def parabolic(correct: float, attempts: int) -> float:
    """Return the ablation's reward, in [0, 1]: 1 if half of the attempts are right."""
    return 4 * correct * (attempts - correct) / attempts**2 if attempts else 0.0


def uncertainty(correct: float, attempts: int) -> float:
    """Return R-Zero's reward, in [0, 1]: 1 if half of the attempts are right; 0 without attempts."""
    return 1 - abs(2 * correct - attempts) / attempts if attempts else 0.0


def between(correct: float, attempts: int) -> float:
    """Return SQLM's reward: 1 if some attempts are right and some wrong, else 0."""
    return float(0 < correct < attempts)


def failure(correct: float, attempts: int) -> float:
    """Return Search Self-play's reward, in [0, 1]: the share of wrong attempts (1 - the mean reward if `correct` sums
    graded rewards); 0 without attempts."""
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
    """The proposer's reward: difficulty + format_weight * f for a valid proposal, `rejected_reward` for a rejected one.

    f is the format score in [0, 1] of proposals from a passage (others have none; weight 0 needs none); the weight 0.5
    gives Dr. Zero's reward, from 0 to 1.5. The part `success` of an attempt's outcome, in [0, 1], scores its answer:
    `failure` is 1 - the mean of these, and for the others an attempt is right from `right_from` on. Above the share
    `max_failed` of failed attempts there is no outcome. Raises TrainingError for a part outside [0, 1], with which
    worse answers could make a question worth more.
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
        """Return the outcome of a proposal that is not itself Invalid. Without `solvers`, before any rollouts, only its
        format counts.

        It is Invalid, with the most frequent reason, if more than `max_failed` of the attempts failed, each retry being
        one more attempt; or, except for `failure`, if one of the group still is: the others would give a different
        difficulty on average.
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
                    f"The reward {self.success} gave {wrong[0]:g} for an attempt at a question, but a proposer's "
                    "reward needs values from 0 for a wrong answer to 1 for a right one. Bound the reward."
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
    """Return the first of the most frequent failures, with their number, instead of a difficulty."""
    reason, _ = Counter(outcome.reason for outcome in failed).most_common(1)[0]
    detail = next(outcome.detail for outcome in failed if outcome.reason == reason)
    return Invalid(reason, f"{len(failed)} of {attempts} of the solver's attempts failed: {detail or 'no detail'}")


@dataclass(frozen=True, slots=True)
class FormatScore:
    """The format's gate and three graded parts, each in [0, 1]."""

    gate: bool
    think: float
    tool: float
    answer: float

    @property
    def value(self) -> float:
        return math.fsum((1.0, self.think, self.tool, self.answer)) / 4 if self.gate else 0.0


def format_score(proposal: Trajectory) -> FormatScore:
    """Return Dr. Zero's format reward (arXiv 2601.07055): the quality of a proposal before it is answered. The gate and
    the steps of each part follow the published code. Appendix A of the paper names four requirements, each with a lower
    bound of 0, that add up to 0.5.

        f = (1 + think + tool + answer) / 4, or 0 if the gate fails.     The paper's r_f is f / 2, in [0, 0.5].

        gate      there are a question and an answer, and the question does not contain the answer
        think     share of the proposer's turns that open with reasoning
        tool      for n = 1 requested hops 1; for n > 1 min((1 + calls) / n, 1) if there was a call and all were valid,
                  else 0; if none is requested, 1 if all calls were valid, else 0 (ours)
        answer    0 if it is neither yes or no nor stands in the source passage (if that was shown) or in one that was
                  found by a proposal whose calls were all valid; else 1 for up to 5 words of its normal form, 1/2 for
                  up to 10, 0 beyond

    As published, more calls than the n - 1 asked for cost nothing. Raises ValueError if the task requests no number of
    hops.
    """
    question, answer = stated(proposal)
    return FormatScore(
        gate=bool(question and normalise(answer)) and not stands_in(answer, question),
        think=_think(proposal),
        tool=_tool(proposal),
        answer=_answer(proposal, answer),
    )


def _think(proposal: Trajectory) -> float:
    turns = proposal.actions
    return sum(_opens_with_reasoning(turn.text) for turn in turns) / len(turns) if turns else 0.0


def _opens_with_reasoning(text: str) -> bool:
    """Return whether a turn begins with reasoning that is closed and not empty. If the chat template opens the
    reasoning, the model's own opening tag is missing."""
    reasoning, closing, _ = text.strip().partition("</think>")
    if not reasoning.startswith("<think>") and _TAG.search(reasoning):
        return False
    return bool(closing and reasoning.removeprefix("<think>").strip())


def _tool(proposal: Trajectory) -> float:
    """Score the calls. Every call of a proposal that ended with an answer was run, so its results show all of them."""
    hops = task_of(proposal.question).requested
    if hops == 0:
        return float(_calls_are_valid(proposal))
    if hops == 1:
        return 1.0
    calls = len(proposal.tool_results)
    return min((1 + calls) / hops, 1.0) if calls and _calls_are_valid(proposal) else 0.0


def _calls_are_valid(proposal: Trajectory) -> bool:
    """Return whether every call was a search. An unreadable turn counts as another call."""
    readable = all(action.problem is None for action in proposal.actions)
    return readable and all(is_valid_search(result.call) for result in proposal.tool_results)


def _answer(proposal: Trajectory, answer: str) -> float:
    wanted = normalise(answer)
    words = len(wanted.split())
    if not wanted or not (wanted in ("yes", "no") or any(wanted in normalise(text) for text in _texts(proposal))):
        return 0.0
    return 1.0 if words <= _FEW_WORDS else 0.5 if words <= _MANY_WORDS else 0.0


def _texts(proposal: Trajectory) -> Iterator[str]:
    """Yield the source passage, if the proposer was shown it, and all passages found, unless a call was invalid."""
    if task_of(proposal.question).shown:
        yield proposal.question.text
    for result in proposal.tool_results if _calls_are_valid(proposal) else ():
        for passage in result.passages:
            yield passage.contents
