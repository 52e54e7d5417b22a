"""Reward functions of an answer: by a metric, by its format, or a user's own; and the settings of all."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Annotated, Any, ClassVar, cast

from pydantic import Field, SerializeAsAny

from evoseek.config.sections import Chosen, Count, PartSettings
from evoseek.errors import ConfigError, EvoseekError, TrainingError
from evoseek.questions.questions import cited_share
from evoseek.text.normalization import METRICS, AnswerMetric, answer_value, f1_of_kept, normalise, set_f1, word_set
from evoseek.text.scripts import find_citations
from evoseek.types import Invalid, Outcome, Question, Scored, Trajectory


class RewardSettings(PartSettings):
    """The reward of an answer."""

    name: str = Field(default="exact_match", description="Reward: a built-in name, or package.module:Name.")
    overlong_max: Count | None = Field(
        default=None,
        description="Number of a rollout's own tokens at which DAPO's overlong penalty reaches -1; it grows from 0 "
        "over the last fifth and is added to the training reward. Default: no penalty.",
    )
    evidence_weight: float = Field(
        default=0.0,
        ge=0,
        le=100,
        description="Weight of the share of a question's evidence that the searches found, added to the solver's "
        "training reward. In self-play the evidence is what the proposer found.",
    )
    unanswered_penalty: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Penalty in training for a rollout that ends without an answer. Above 0, a wrong answer is better "
        "than none.",
    )
    wrong_penalty: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Penalty in training for an answer that earns nothing and does not abstain. Above 0, abstaining "
        "beats a wrong answer; set unanswered_penalty too, or ending without an answer is as good as abstaining.",
    )


RewardPart = Annotated[SerializeAsAny[RewardSettings], Chosen("reward", RewardSettings)]


def lowest_of(reward: object) -> float:
    """Return the lowest value of a reward: its attribute `lowest`, by default 0. Raises ConfigError if it is not
    finite."""
    lowest: object = getattr(reward, "lowest", 0.0)
    if not isinstance(lowest, int | float) or not math.isfinite(lowest):
        raise ConfigError(
            f"The reward {getattr(reward, '__name__', type(reward).__name__)} has `lowest` = {lowest!r}. Expected a "
            "finite number such as -1.0. Set the attribute of the function or class to the lowest reward that it gives."
        )
    return float(lowest)


class AnswerReward:
    """A RewardFn: one metric of the trajectory's answer against its question's golden answers (`answer_value`).

    Only `trajectory.answer` is read, never prompt or tool text; a trajectory without an answer scores 0. Where a paper
    rewards subEM, use "guarded_substring_match".
    """

    by_name: ClassVar[Mapping[str, AnswerMetric]] = METRICS

    @classmethod
    def build(cls, settings: RewardSettings, context: object) -> AnswerReward:
        return cls(settings.name)

    def __init__(self, metric: str = "exact_match") -> None:
        self.metric = metric

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        value = answer_value(self.metric, trajectory)
        return Scored(value, {self.metric: value})


class NamedReward:
    """A RewardFn from a user's function or object: its value is also the part `name` of the outcome.

    It may return an Outcome or a plain number, and may be a coroutine function.
    """

    def __init__(self, reward: Callable[[Trajectory], Any], name: str) -> None:
        self._reward, self._name, self.lowest = reward, name, lowest_of(reward)

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        """Score one trajectory. Raises TrainingError for a value that is not finite, or below `lowest`."""
        try:
            given = self._reward(trajectory)
            outcome: Any = await given if isawaitable(given) else given
        except EvoseekError:
            raise
        except (Exception, SystemExit) as error:
            raise TrainingError(
                f"The reward {self._name} failed for the rollout {trajectory.id}: {type(error).__name__}: {error}. "
                "Nothing was trained on. Correct the reward; if an outside service fails, it should raise ToolError."
            ) from error
        if isinstance(outcome, Invalid):
            return outcome
        value = outcome.reward if isinstance(outcome, Scored) else outcome
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise TrainingError(
                f"The reward {self._name} gave {outcome!r} for the rollout {trajectory.id}. Expected a finite number, "
                "or Scored or Invalid of evoseek.types."
            )
        if value < self.lowest:
            raise TrainingError(
                f"The reward {self._name} gave {value:g} for the rollout {trajectory.id}, less than its `lowest`, "
                f"{self.lowest:g}. Set the attribute `lowest` of the function or class to its lowest reward."
            )
        parts = outcome.parts if isinstance(outcome, Scored) else {}
        return Scored(float(value), {self._name: float(value), **parts})


class FanOutReward:
    """A RewardFn, the loose accuracy of FanOutQA (arXiv 2402.14116): `fan_out` of the answer against the question's
    metadata `reference`, or else against its golden answers, all of them needed. A trajectory without an answer
    scores 0."""

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        answer, wanted = trajectory.answer, _reference(trajectory.question)
        value = 0.0 if answer is None else fan_out(answer, wanted)
        return Scored(value, {"fan_out": value})


def fan_out(answer: str, reference: Sequence[str]) -> float:
    """Return the share of the reference's strings that the answer contains as whole words, both in SQuAD's normal form.
    For a string that is empty in normal form, the letters are looked for."""
    words = f" {normalise(answer)} "
    found = (f" {plain} " in words if (plain := normalise(text)) else text in answer for text in reference)
    return sum(found) / len(reference)


def _reference(question: Question) -> Sequence[str]:
    given = question.metadata.get("reference")
    if isinstance(given, list) and given:
        return tuple(map(str, cast("list[object]", given)))
    return question.golden_answers


UNCITED, LENGTH_COST = 0.5, 0.1


def cited_f1(trajectory: Trajectory, kept: str) -> float:
    """Return the value in [0, 1] of an answer of sentences; `kept` is what the check of evidence leaves of it.

    It is F1 with the nearest golden answer (words of rejected sentences count, but match nothing), times the share of
    cited passages that are the question's own (`cited_share`), minus a tenth of the share by which the answer is longer
    than the longest golden answer. Citing wrongly earns nothing and not citing half, so a citation pays if it is
    usually right. A sentence that adds no word of the golden answer never pays. It fails if several passages say the
    same and only one of them is known as the question's own.
    """
    question, (answer, cited) = trajectory.question, find_citations(trajectory.answer or "")
    share = cited_share((number for number, _ in cited), trajectory.passages, question, uncited=UNCITED)
    longest = max(len(normalise(golden).split()) for golden in question.golden_answers)
    excess = max(0.0, len(normalise(answer).split()) / longest - 1)
    value = f1_of_kept(kept, answer, question.golden_answers) * (1.0 if share is None else share)
    return max(0.0, value - LENGTH_COST * excess)


BROKEN = -1.0
"""The reward of a broken format: the lowest possible score."""

_WEB_TAG = re.compile(r"<(/?)(think|search|browse|information|tool_call|tool_response|answer)>")


class WebFormatReward:
    """DeepResearcher's reward (arXiv 2504.03160, section 3.4), a RewardFn: -1 if the format is broken, else `set_f1`.
    Its parts are `format`, 1 if the format is correct, and `set_f1`, 0 if it is not.

    The format is correct if the rollout ended with an answer of at least one word, in the only <answer> of its last
    turn, every turn could be parsed, and in every turn each tag is closed before another one is opened. A call that
    cannot be parsed makes the reward -1, even if the rollout continues after it (rollout.max_malformed), and so does
    reaching a limit.
    """

    lowest = BROKEN

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        if not keeps_format(trajectory):
            return Scored(BROKEN, {"format": 0.0, "set_f1": 0.0})
        value = set_f1(trajectory.answer or "", trajectory.question.golden_answers)
        return Scored(value, {"format": 1.0, "set_f1": value})


def keeps_format(trajectory: Trajectory) -> bool:
    """Return whether a trajectory answers with all tags in place."""
    turns = [action.text for action in trajectory.actions]
    answers = bool(turns and word_set(trajectory.answer or "")) and turns[-1].count("<answer>") == 1
    readable = all(action.problem is None for action in trajectory.actions)
    return answers and readable and all(map(_is_balanced, turns))


def _is_balanced(text: str) -> bool:
    """Return whether tags alternately open and close. The first may be </think>: some chat templates open the
    reasoning."""
    tags = [(bool(tag[1]), str(tag[2])) for tag in _WEB_TAG.finditer(text)]
    if tags[:1] == [(True, "think")]:
        tags = tags[1:]
    pairs = zip(tags[::2], tags[1::2], strict=False)
    return len(tags) % 2 == 0 and all(pair == ((False, pair[0][1]), (True, pair[0][1])) for pair in pairs)
