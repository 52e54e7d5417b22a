"""Reading a run's sources, and checking them before anything heavy is loaded."""

from __future__ import annotations

from pathlib import Path

from evoseek.corpus.demonstrations import load_demonstrations
from evoseek.corpus.questions import load_questions
from evoseek.errors import ConfigError, DataError
from evoseek.files import nearest
from evoseek.reward.answer import evaluable_question, usable_question
from evoseek.runs import RunDirectory
from evoseek.search.lexical import check_index
from evoseek.settings import lookup
from evoseek.training.settings import TrainingSettings
from evoseek.types import Question


def read_questions(path: str, *, setting: str) -> list[Question]:
    """Questions with usable golden answers, and for `evaluation.path` also those that are marked as unanswerable.
    Raises ConfigError if `setting` was left empty, DataError if unusable."""
    if not path:
        raise ConfigError(f"No questions were given: set {setting} to a JSON-lines file of questions.")
    check = evaluable_question if setting.startswith("evaluation.path") else usable_question
    return load_questions(Path(path), check=check)


def evaluation_path(settings: TrainingSettings) -> str:
    """The questions that a policy is examined on: held-out ones, or else those of training."""
    return settings.evaluation.path or lookup(settings, "questions.path") or ""


def check_training_sources(settings: TrainingSettings) -> None:
    """Check that all sources of a training run exist. Raises the same errors as opening and reading them."""
    if settings.searches_index:
        check_index(settings.search.index, setting="search.index", engine=settings.search.name)
    if (path := lookup(settings, "questions.path")) is not None:
        read_questions(path, setting="questions.path")
    for setting in ("selfplay.world", "ssp.answers"):
        path = lookup(settings, setting)
        if path and not Path(path).is_file():
            raise DataError(f"{setting} is {path}, but there is no such file.{nearest(Path(path))} Check the path.")
    if lookup(settings, "demonstrations.path") == lookup(settings, "demonstrations.from_run") == "":
        raise ConfigError(
            "No demonstrations were given: set demonstrations.path (--demonstrations) to a file of them, or "
            "demonstrations.from_run (--from) to the directory of a run."
        )
    if path := lookup(settings, "demonstrations.path"):
        load_demonstrations(Path(path))
    if (run := lookup(settings, "demonstrations.from_run")) and not RunDirectory(Path(run)).trajectories.is_file():
        raise DataError(
            f"demonstrations.from_run is {run}, but there is no trajectories.jsonl in it.{nearest(Path(run))} Give the "
            "directory of a run that `evoseek train` made."
        )
    evaluation = settings.evaluation
    if evaluation.path:
        read_questions(evaluation.path, setting="evaluation.path")
        if settings.examines_index:  # an engine of a user's own reads its index in its own way
            index = evaluation.index or settings.search.index
            check_index(index, setting="evaluation.index", engine=settings.search.name)
