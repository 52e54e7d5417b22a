"""From settings to what a command reads: questions, indexes. No torch is loaded for this."""

from __future__ import annotations

from pathlib import Path

from evoseek.config import ChatConfig, Config
from evoseek.corpus.questions import load_questions
from evoseek.errors import ConfigError, DataError
from evoseek.files import nearest
from evoseek.reward.answer import usable_question
from evoseek.search.lexical import LexicalIndex
from evoseek.search.manifest import Manifest
from evoseek.types import Question


def open_index(directory: str, *, setting: str) -> LexicalIndex:
    """An index to search. Raises ConfigError if `setting` was left empty, SearchIndexError if it cannot be used."""
    return LexicalIndex.open(_directory(directory, setting))


def read_questions(path: str, *, setting: str) -> list[Question]:
    """Questions with usable golden answers. Raises ConfigError if `setting` was left empty, DataError if unusable."""
    if not path:
        raise ConfigError(f"No questions were given: set {setting} to a JSON-lines file of questions.")
    return load_questions(Path(path), check=usable_question)


def check_training_sources(config: Config) -> None:
    """Before anything heavy is loaded: is all there that a training run reads? Raises as opening and reading do."""
    system, evaluation = config.run.system, config.evaluation
    on_the_web = system == "deepresearcher"
    if system not in ("deepresearcher", "zerosearch"):
        check_index(config.search.index, setting="search.index")
    if system not in ("dr-zero", "ssp"):
        read_questions(config.questions.path, setting="questions.path")
    for setting, path in (("selfplay.world", config.selfplay.world), ("ssp.answers", config.ssp.answers)):
        if path and not Path(path).is_file():
            raise DataError(f"{setting} is {path}, but there is no such file.{nearest(Path(path))} Check the path.")
    if evaluation.path:
        read_questions(evaluation.path, setting="evaluation.path")
        if not on_the_web:
            check_index(evaluation.index or config.search.index, setting="evaluation.index")


def check_index(directory: str, *, setting: str) -> None:
    """Is there an index? Its contents are not looked at yet. Raises as `open_index` does."""
    Manifest.read(_directory(directory, setting))


def check_chat(settings: ChatConfig, *, section: str) -> None:
    """Raises ConfigError if no model is named. `section` names the settings."""
    if not settings.model:
        raise ConfigError(
            f"No model was given to play this part: set {section}.model to a model's name or directory, or, with "
            f"{section}.base_url, to the name that an endpoint knows it by."
        )


def _directory(directory: str, setting: str) -> Path:
    if not directory:
        raise ConfigError(f"No index was given: set {setting} to a directory that `evoseek index` made.")
    return Path(directory)
