"""Stages of a run: each has its own settings, and ends after a number of steps or by a condition on a metric.

    [[stages]]
    name = "two hops alone"
    until = "reward/hops_2 > 0.3"
    over = 3
    questions.where = {hops = 2}

    [[stages]]
    name = "mixed"
    questions.balance_by = "hops"
    learner.learning_rate = 1e-5

A new stage begins like a resumed run: from the last step's checkpoint, with the run's weights, optimizer and logs, and
everything else made from the stage's settings. So interruptions do not change a run.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from statistics import fmean
from typing import Any, NamedTuple, TypeVar, cast

from evoseek.assembly.inputs import WRITTEN_FIELDS, questions_to_write, training_questions
from evoseek.assembly.settings import QuestionSettings, StageSettings, TrainingSettings
from evoseek.config.registry import find
from evoseek.config.sections import (
    Section,
    changeable,
    changed,
    check_effect,
    check_settings,
    lookup,
    read_settings,
    with_setting,
)
from evoseek.credit import needs_critic
from evoseek.errors import ConfigError, did_you_mean
from evoseek.storage.runs import RunDirectory
from evoseek.training.question_order import Passes, QuestionOrder, chosen
from evoseek.types import Question

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_CONDITION = re.compile(r"\s*(\S+)\s+(>=|<=|>|<)\s+([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*")

_Settings = TypeVar("_Settings", bound=TrainingSettings)


class Condition(NamedTuple):
    """A metric compared with a number."""

    metric: str
    comparison: str
    number: float

    def holds(self, value: float) -> bool:
        return _COMPARISONS[self.comparison](value, self.number)


@dataclass(frozen=True, slots=True)
class Began:
    """A stage that has begun: its name, its first step, and the reason."""

    name: str
    step: int
    why: str


@dataclass(slots=True)
class Stages:
    """The stages of a run, and those already begun. `rows` are metric rows of the current one."""

    stages: Sequence[StageSettings]
    history: list[Began]
    rows: list[Mapping[str, float | None]] = field(default_factory=list[Mapping[str, float | None]])

    @classmethod
    def of(cls, settings: TrainingSettings, position: Mapping[str, object] | None) -> Stages | None:
        """Return the stages of a run whose last checkpoint has this position (None: a new run); None without stages."""
        stages: Sequence[StageSettings] = lookup(settings, "stages") or ()
        if not stages:
            return None
        begun = cast("Sequence[Mapping[str, Any]]", (position or {}).get("stages") or ())
        return cls(stages, [Began(**stage) for stage in begun] or [Began(stages[0].name, 1, "the run began")])

    @property
    def current(self) -> StageSettings:
        return self.stages[len(self.history) - 1]

    def state(self) -> list[dict[str, object]]:
        return [asdict(stage) for stage in self.history]

    def begins_after(self, step: int) -> bool:
        return self.history[-1].step == step + 1

    def describe(self, step: int) -> str:
        """Describe the stage of the run after this step."""
        began = self.history[-1]
        where = f"Stage {len(self.history)} of {len(self.stages)} ({began.name})"
        if self.begins_after(step):
            return f"{where} begins with step {began.step}: {began.why}."
        return f"{where} continues after step {step}; it began with step {began.step}: {began.why}."

    def restore_rows(self, rows: Sequence[Mapping[str, float | None]]) -> None:
        """Restore the current stage's rows from the run's."""
        self.rows = [row for row in rows if (row["step"] or 0) >= self.history[-1].step]

    def observe(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add a step's row; the row before the first step belongs to no stage."""
        if step >= self.history[-1].step:
            self.rows.append({name: value if math.isfinite(value) else None for name, value in metrics.items()})

    def ended(self, step: int) -> str | None:
        """Return why the current stage ends with this step, or None."""
        stage = self.current
        if stage is self.stages[-1]:
            return None
        if stage.until:
            condition = parse_condition(stage.until)
            found = [value for row in self.rows if (value := row.get(condition.metric)) is not None][-stage.over :]
            if len(found) == stage.over and condition.holds(fmean(found)):
                steps = f"{stage.over} step{'' if stage.over == 1 else 's'}"
                return f"the mean of {condition.metric} over {steps} was {fmean(found):.4g} (until {stage.until})"
        if stage.steps is not None and step - self.history[-1].step + 1 >= stage.steps:
            return f"{stage.name} has made its {stage.steps} steps"
        return None

    def warning(self) -> str | None:
        """Return a warning if enough steps are made for the condition, but none reported its metric."""
        stage = self.current
        if not stage.until or stage is self.stages[-1] or len(self.rows) != stage.over:
            return None
        metric = parse_condition(stage.until).metric
        known = {name for row in self.rows for name in row}
        if metric in known or metric.startswith("eval/"):
            return None
        return (
            f"The stage {stage.name} ends when {stage.until}, but no step has reported {metric} so far."
            + did_you_mean(metric, known)
            + " Until one does, only its number of steps can end the stage."
        )

    def begin_next(self, step: int, why: str) -> None:
        self.history.append(Began(self.stages[len(self.history)].name, step, why))
        self.rows = []


def parse_condition(text: str) -> Condition:
    """Parse a condition such as "reward/hops_2 > 0.3". Raises ConfigError."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"stages.until is {text!r}. Expected a metric, one of > >= < <=, and a number, with spaces between them: "
            '"reward/hops_2 > 0.3".'
        )
    if found[1] == "step":
        raise ConfigError(f"stages.until is {text!r}, but step is not a metric. Set the stage's steps instead.")
    return Condition(found[1], found[2], float(found[3]))


def settings_in(settings: _Settings, stage: StageSettings) -> _Settings:
    """Return the settings of a run in a stage; held-out questions have one temperature in all stages. Raises
    ConfigError for a setting that does not exist, that a stage cannot change, or that conflicts with others."""
    tree = {key: value for key, value in settings.resolved().items() if key != "stages"}
    source = f"stages: {stage.name}"
    staged = read_settings(type(settings), tree, stage.own, source=source)
    keys = list(_keys(settings, stage.own))
    allowed = changeable(staged, "in_stage")
    for key in keys:
        if not any(fnmatchcase(key, pattern) for pattern in allowed):
            raise ConfigError(
                f"The stage {stage.name} sets {key}, which cannot change during a run. A stage can change "
                f"{', '.join(allowed)}."
            )
    names = (staged.credit.name, settings.credit.name)
    if len(critics := [name for name in names if needs_critic(find("credit", name))]) == 1:
        raise ConfigError(
            f"The stage {stage.name} has credit.name = {names[0]}, and the run {names[1]}: {critics[0]} trains a "
            "critic, which cannot begin or end during a run. Use this credit in all stages, or in none."
        )
    if staged.evaluation.path:
        staged = with_setting(staged, "evaluation.temperature", settings.held_out_temperature)
    check_settings(staged)
    check_effect(staged, keys)
    return staged


def check_run(settings: TrainingSettings, run: RunDirectory | None = None, processes: int = 1) -> None:
    """Raise ConfigError for settings that a run in this directory (None: a new one) with these processes would refuse,
    without loading a model. A new run also refuses settings without effect, and what `check_stages` refuses. Runs, dry
    runs and `evoseek doctor` share these checks; checks of files follow (`check_asked`)."""
    if run is None or not run.is_begun:  # a resumed run must keep its first settings
        check_effect(settings, changed(settings))
        check_stages(settings)
        if processes > 1 and lookup(settings, "cold_start.questions"):
            raise ConfigError(
                f"A cold start needs one process, but --processes is {processes}. Run the command without --processes, "
                "stop it with Ctrl-C after a step of the run itself, and resume with --processes."
            )
    check_settings(settings)
    for problem in settings.problems_of_run(processes):
        raise ConfigError(problem)
    if settings.reward.name == "judge" and not settings.judge.model:
        settings.judge.check("judge")


def check_asked(settings: TrainingSettings, run: RunDirectory | None = None) -> None:
    """Raise ConfigError if a new run has too few questions for a step, as the run itself would."""
    if not (run and run.is_begun) and lookup(settings, "questions.path") and not lookup(settings, "stages"):
        _check_asked(settings, training_questions(settings)[0])


def check_stages(settings: TrainingSettings, questions: Sequence[Question] | None = None) -> None:
    """Raise ConfigError for a stage with wrong settings or too few questions (None: the settings'). For questions that
    a cold start has yet to write, only the metadata fields that select them are checked."""
    stages: Sequence[StageSettings] = lookup(settings, "stages") or ()
    is_cold = questions_to_write(settings) > 0
    if questions is None:
        questions = training_questions(settings)[0] if stages and not is_cold else []
    if is_cold:
        _check_written(settings)
    for stage in stages:
        staged = settings_in(settings, stage)
        if stage.until and parse_condition(stage.until).metric.startswith("eval/") and not settings.evaluation.path:
            raise ConfigError(
                f"The stage {stage.name} ends when {stage.until}, but nothing is evaluated. Set evaluation.path."
            )
        if is_cold:
            _check_written(staged, f"In the stage {stage.name}: ")
        if not questions:
            continue
        try:
            _check_asked(staged, questions)
        except ConfigError as error:
            raise ConfigError(f"In the stage {stage.name}: {error}") from error


def _check_asked(settings: TrainingSettings, questions: Sequence[Question]) -> None:
    """Raise ConfigError if these questions are too few for a step."""
    asked = cast("QuestionSettings", lookup(settings, "questions"))
    QuestionOrder.of(asked)(chosen(questions, asked.where), seed=0, step=1, size=asked.per_step, passes=Passes())


def _check_written(settings: TrainingSettings, where: str = "") -> None:
    """Raise ConfigError for a metadata field that a cold start will not write."""
    balanced = lookup(settings, "questions.balance_by")
    for key in (*(lookup(settings, "questions.where") or ()), *([balanced] if balanced else ())):
        if key not in WRITTEN_FIELDS:
            raise ConfigError(
                f"{where}questions.where or questions.balance_by names {key}, but the questions that a cold start "
                f"writes have {', '.join(WRITTEN_FIELDS)}.{did_you_mean(key, WRITTEN_FIELDS)} Name one of these."
            )


def _keys(settings: Section, tree: Mapping[str, object], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of the settings that a tree sets; a text for a table is its name."""
    for key, value in tree.items():
        dotted = f"{prefix}{key}"
        table = lookup(settings, dotted)
        if isinstance(table, Section):
            yield from _keys(settings, value if isinstance(value, Mapping) else {"name": value}, f"{dotted}.")
        else:
            yield dotted
