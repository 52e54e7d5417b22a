"""The inputs of a run: its files and folders, checked before anything heavy is loaded, and their digests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from evoseek.assembly.settings import TrainingSettings
from evoseek.chat.settings import EndpointSettings
from evoseek.config.sections import PartSettings, defaults_of, lookup, tables
from evoseek.errors import ConfigError, DataError
from evoseek.models.source import base_name, find_policy, is_adapter, is_gguf
from evoseek.questions.demonstrations import load_demonstrations
from evoseek.questions.feedback import FeedbackFile, JudgedQuestions
from evoseek.questions.questions import load_questions, save_questions
from evoseek.rollout.prompts import load_prompts
from evoseek.search.lexical import check_index
from evoseek.search.manifest import Manifest
from evoseek.storage.checkpoints import Checkpoint
from evoseek.storage.files import expanded, file_digest, json_digest, model_digest, nearest
from evoseek.storage.runs import Input, RunDirectory, with_digests
from evoseek.text.normalization import SCORES_REFUSALS, comparable, evaluable_question, usable_question
from evoseek.types import Question

_FILES = ("questions.path", "evaluation.path", "ssp.answers", "selfplay.world", "demonstrations.path")
_INDEXES = ("search.index", "evaluation.index")


def inputs_of(settings: TrainingSettings) -> dict[str, Input]:
    """Return every file and folder that the settings name, with its digest, by the setting's dotted key.

    Inputs that are not on this machine are left out: the web, and models on the Hugging Face hub or behind an endpoint,
    whose names alone can be compared. Raises ConfigError for an unreadable input, SearchIndexError for a damaged index.
    """
    models = {"policy.model": settings.policy.model}
    for name, chat in tables(settings):
        if isinstance(chat, EndpointSettings) and name not in ("answerer", "support"):
            models[f"{name}.model"] = "" if chat.base_url else chat.model
    named = {key: expanded(find_policy(name)) for key, name in models.items() if name}
    prompts = settings.policy.prompts
    sets = {} if prompts == "auto" else {"policy.prompts": load_prompts(prompts).directory}
    return {
        **_digested(_paths(settings, _FILES), file_digest),
        **_digested(_paths(settings, _INDEXES), partial(_index, engine=settings.search.name)),
        **_digested({key: path for key, path in named.items() if _is_here(path)}, _model),
        **_digested(sets, _prompts),
        **_digested(_own_modules(settings), file_digest),
    }


def identity(
    settings: TrainingSettings, checkpoint: Checkpoint | None = None, parts: Mapping[str, str] | None = None
) -> dict[str, object]:
    """Return the resolved settings with digests instead of file names, the modules of a user's own parts (and of
    `parts`, by where they are named), and the checkpoint in use. A file that was begun with the same values is resumed.
    Raises as `inputs_of`."""
    origin = {"sha256": checkpoint.digest, "step": checkpoint.step} if checkpoint else {}
    own = {at: {"sha256": file_digest(path)} for at, path in _own_modules(settings, parts).items()}
    known = {**with_digests(settings.resolved(), inputs_of(settings)), "checkpoint": origin}
    return {**known, "own": own} if own else known


def default_identity(settings: TrainingSettings) -> dict[str, object]:
    """Return the resolved defaults: the values of settings that are newer than a file."""
    return defaults_of(settings).resolved()


def _own_modules(settings: TrainingSettings, parts: Mapping[str, str] | None = None) -> dict[str, Path]:
    named = {"run.system": settings.run.system, **(parts or {})}
    named |= {at: part.name for at, part in tables(settings) if isinstance(part, PartSettings)}
    files: dict[str, Path] = {}
    for at, name in named.items():
        module = sys.modules.get(name.partition(":")[0]) if ":" in name else None
        if module is not None and getattr(module, "__file__", None):
            files[f"{at} ({name})"] = Path(str(module.__file__))
    return files


def _paths(settings: TrainingSettings, keys: tuple[str, ...]) -> dict[str, Path]:
    return {key: Path(path) for key in keys if (path := lookup(settings, key))}


def _digested(paths: Mapping[str, Path], digest: Callable[[Path], str]) -> dict[str, Input]:
    found: dict[str, Input] = {}
    for key, path in paths.items():
        try:
            found[key] = Input(str(path.absolute()), digest(path))
        except OSError as error:
            raise ConfigError(
                f"{key} is {path}, which cannot be read ({error.strerror or error}). Correct the path."
            ) from error
    return found


def _index(directory: Path, engine: str) -> str:
    """Return the checksum of an index, and of the engine's name if the manifest selects it."""
    manifest = Manifest.read(directory)
    as_built = engine == "auto" and manifest.vectors is not None
    return json_digest([manifest.identity, manifest.engine_for(engine)]) if as_built else manifest.identity


def _is_here(model: Path) -> bool:
    return model.is_dir() or (is_gguf(str(model)) and model.is_file())


def _model(path: Path) -> str:
    if not is_adapter(path):
        return model_digest(path)
    base = expanded(find_policy(base_name(path)))
    return json_digest([model_digest(path), _model(base) if _is_here(base) else str(base)])


def _prompts(directory: Path) -> str:
    paths = [*directory.glob("*.jinja"), *directory.glob("*.examples.json")]
    return json_digest({path.name: file_digest(path) for path in paths})


def read_questions(path: str, *, setting: str, reward: str = "") -> list[Question]:
    """Read questions with usable golden answers; for `evaluation.path`, or a reward among `SCORES_REFUSALS`,
    unanswerable ones too. Raises ConfigError if `setting` was left empty, DataError if the file is unusable."""
    if not path:
        written = "" if setting == "questions.path" else " A run that writes its own (`evoseek train`) holds some out."
        raise ConfigError(f"No questions were given. Set {setting} to a JSON-lines file of questions.{written}")
    is_scored = setting.startswith("evaluation.path") or reward in SCORES_REFUSALS
    return load_questions(Path(path), check=evaluable_question if is_scored else usable_question)


@dataclass(frozen=True)
class ReviewedQuestions:
    """The test set: the questions that a person judged right (`evaluation.reviewed`), which are not trained on.
    Questions are the same if their normal forms are equal."""

    texts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, settings: TrainingSettings) -> ReviewedQuestions:
        path = Path(settings.evaluation.reviewed)
        if not settings.evaluation.reviewed or (path.is_file() and not _has_lines(path)):
            return cls()
        return cls(frozenset(comparable(question.text) for question in load_questions(path)))

    def __contains__(self, text: str) -> bool:
        return bool(self.texts) and comparable(text) in self.texts


WRITTEN_FIELDS = ("answerable", "form", "hops", "kind")
"""Fields that can select the questions of a cold start."""


def questions_to_write(settings: TrainingSettings) -> int:
    """Return the most questions that a cold start writes; 0 if questions were given."""
    return 0 if lookup(settings, "questions.path") else lookup(settings, "cold_start.questions") or 0


def training_questions(
    settings: TrainingSettings, run: RunDirectory | None = None, *, reward: str | None = None
) -> tuple[list[Question], str]:
    """Return the training questions, and in words what was left out, added or corrected ("": nothing).

    They are the questions of `questions.path`, with answers that `questions.feedback` corrects, and the
    feedback's with a known right answer; without the test set, and without feedback on what the run's cold start held
    out. A run keeps the feedback that it began with. `reward` names the reward that scores them (None: the settings').
    Raises ConfigError if there are none, DataError for an unusable file.
    """
    path, tests = str(lookup(settings, "questions.path") or ""), ReviewedQuestions.of(settings)
    reward = settings.reward.name if reward is None else reward
    asked = read_questions(path, setting="questions.path", reward=reward)
    kept = [question for question in asked if question.text not in tests]
    if not kept:
        raise ConfigError(
            f"All {len(asked)} questions of {path} are in the test set {settings.evaluation.reviewed}, which training "
            "leaves out. Give others (questions.path), or take questions out of the test set."
        )
    held_out = settings.evaluation.path and read_questions(settings.evaluation.path, setting="evaluation.path")
    cold = load_questions(run.held_out) if run is not None and _has_lines(run.held_out) else []
    held = {comparable(question.text) for question in (*(held_out or ()), *cold)}
    judged = _run_feedback(settings, run)
    usable = [question for question in judged if question.is_answerable or reward in SCORES_REFUSALS]
    usable = [question for question in usable if comparable(question.text) not in held and question.text not in tests]
    right = {comparable(question.text): question for question in usable if question.metadata.get("corrected")}
    trained = [_corrected(question, right.get(comparable(question.text), question)) for question in kept]
    known = {comparable(question.text) for question in asked}
    added = [question for question in usable if comparable(question.text) not in known]
    corrected = {comparable(now.text) for now, before in zip(trained, kept, strict=True) if now is not before}
    left_out, words = len(asked) - len(kept), list[str]()
    if left_out:
        words.append(
            f"{left_out} of {path} are left out, since they are in the test set {settings.evaluation.reviewed}"
        )
    if judged:
        words.append(f"{len(added)} are added from the feedback in {lookup(settings, 'questions.feedback')}")
    if corrected:
        words.append(f"{len(corrected)} have the answer that it corrects")
    if others := len(judged) - len(added) - len(corrected):
        words.append(f"{others} others are not, since they are there already, held out, or not scored by {reward}")
    return trained + added, f"Training questions: {len(trained) + len(added)}; {'; '.join(words)}." if words else ""


def _corrected(question: Question, judged: Question) -> Question:
    """Return the question with the answer that a person named, unless it has that answer. Evidence and hidden documents
    of the former answer are dropped."""
    answers = set(map(comparable, judged.golden_answers))
    if judged.is_answerable == question.is_answerable and answers <= set(map(comparable, question.golden_answers)):
        return question
    kept = {key: value for key, value in question.metadata.items() if key not in ("answerable", "evidence", "hidden")}
    return replace(question, golden_answers=judged.golden_answers, metadata={**kept, **judged.metadata})


def _has_lines(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def keep_feedback(settings: TrainingSettings, run: RunDirectory) -> None:
    """Save the questions of the feedback in the directory of a new run. Raises DataError for an unusable file, RunError
    if the disk refuses them."""
    if run.is_begun:
        return
    run.feedback.unlink(missing_ok=True)
    if questions := _run_feedback(settings, None):
        save_questions(run.feedback, questions)


def _run_feedback(settings: TrainingSettings, run: RunDirectory | None) -> list[Question]:
    """Return the feedback's questions that a run began with, or of the settings if it has not begun, unanswerable ones
    included."""
    if run is not None and run.feedback.is_file():
        return load_questions(run.feedback)
    path = lookup(settings, "questions.feedback")
    if not path or (run is not None and run.is_begun):
        return []
    judged = JudgedQuestions.of(FeedbackFile(Path(path)).read()).known
    return [one for one in judged if not one.is_answerable or any(map(comparable, one.golden_answers))]


def evaluation_path(settings: TrainingSettings) -> str:
    """Return the file of questions that a policy is evaluated on: the held-out ones, or else the training questions."""
    return settings.evaluation.path or lookup(settings, "questions.path") or ""


def check_training_sources(settings: TrainingSettings) -> None:
    """Check that all sources of a training run exist. Raises the same errors as reading them."""
    if settings.searches_index:
        check_index(settings.search.index, setting="search.index", engine=settings.search)
    for read in training_sources(settings).values():
        read()
    evaluation = settings.evaluation
    if evaluation.path and settings.examines_index:  # a user's own engine reads its index in its own way
        index = evaluation.index or settings.search.index
        check_index(index, setting="evaluation.index", engine=settings.search)


def training_sources(settings: TrainingSettings) -> dict[str, Callable[[], str]]:
    """Return, by setting, a function for each file of a training run that reads the file and describes it. The
    functions raise ConfigError or DataError."""
    files: dict[str, Callable[[], str]] = {}
    demonstrations, evaluation = lookup(settings, "demonstrations.path"), settings.evaluation
    if lookup(settings, "questions.path") is not None and not questions_to_write(settings):
        files["questions.path"] = lambda: f"{len(training_questions(settings)[0])} questions to train on"
    for setting in ("selfplay.world", "ssp.answers"):
        if path := lookup(settings, setting):
            files[setting] = partial(_existing, path, setting)
    if demonstrations is not None:
        files["demonstrations.path"] = partial(_demonstrations, demonstrations)
    if evaluation.reviewed:
        files["evaluation.reviewed"] = lambda: f"{len(ReviewedQuestions.of(settings).texts)} questions of the test set"
    if path := evaluation.path:
        files["evaluation.path"] = lambda: f"{len(read_questions(path, setting='evaluation.path'))} questions in {path}"
    return files


def _existing(path: str, setting: str) -> str:
    if not Path(path).is_file():
        raise DataError(f"{setting} is {path}, but there is no such file.{nearest(Path(path))} Check the path.")
    return path


def _demonstrations(path: str) -> str:
    if not path:
        raise ConfigError(
            "No demonstrations were given. Set demonstrations.path (--demonstrations) to a file such as `evoseek "
            "collect` writes."
        )
    return f"{len(load_demonstrations(Path(path)))} demonstrations in {path}"
