"""Suites: question sets with what a score on them has to declare (metric, split, n, licence, checksum).

A suite is named in the catalogue (`suites.toml`), or is a TOML file of the same keys with the `path` of its questions
beside it, or a question file or a folder, whose n and checksum are then those that are found. Questions are JSON lines,
Parquet or data sets of the Hugging Face hub, in the shapes of FlashRAG and Search-R1 (`eval.suite_rows`); FanOutQA and
BrowseComp-Plus have forms of their own. Parquet and the hub need the extra `data`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from evoseek.corpus.questions import question_row
from evoseek.errors import ConfigError, DataError
from evoseek.eval.browsecomp import read_queries
from evoseek.eval.fanoutqa import packaged_file, read_fanoutqa
from evoseek.eval.suite_rows import questions_of, rows_of_file, rows_of_hub
from evoseek.files import expanded, json_digest, nearest
from evoseek.reward.answer import evaluable_question
from evoseek.types import Question

_INSIDE = ("{name}/{split}.jsonl", "{name}/{split}.parquet", "{split}.jsonl", "{split}.parquet", "questions.jsonl")


class Declaration(BaseModel):
    """What a suite declares. `path` is relative to the file that declares it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    form: Literal["questions", "fanoutqa", "browsecomp-plus"] = "questions"
    metric: str = ""
    split: str = "test"
    n: int | None = None
    licence: str = ""
    sha256: str = ""
    hub: str = ""
    path: str = ""
    qrels: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite with its questions. `folder` is where they came from, if they came from one."""

    name: str
    declared: Declaration
    questions: tuple[Question, ...]
    folder: Path | None = None

    @property
    def index(self) -> str | None:
        """The index beside the questions, as a generated world's folder has it; None if there is none."""
        index = self.folder / "index" if self.folder else None
        return str(index) if index and index.is_dir() else None

    def about(self) -> dict[str, object]:
        """What results say of it."""
        found = {"name": self.name, **self.declared.model_dump(include={"metric", "split", "licence"})}
        return {**found, "n": len(self.questions), "sha256": questions_digest(self.questions)}


def load_suite(name: str, data: Path | None = None) -> Suite:
    """The suite of a name or path; `data` is a folder that holds the questions of a suite of the catalogue.

    Raises ConfigError for an unknown name, DataError for questions that cannot be read, or that are not those declared:
    another number of them, or another checksum.
    """
    catalogue, path = _catalogue(), expanded(name)
    if name in catalogue:
        suite = _of_catalogue(name, catalogue[name], data)
    elif path.suffix == ".toml" and path.is_file():
        declared = _declaration(_toml(path), path)
        suite = _read(path.stem, declared, path.parent / declared.path)
    elif path.exists():
        suite = _read(path.stem, Declaration(split=""), path)
    else:
        close = get_close_matches(name, catalogue, 1)
        hint = f" Did you mean {close[0]}?" if close else nearest(path)
        raise ConfigError(
            f"There is no suite {name!r}.{hint} Give one of {', '.join(catalogue)}; or the path of a question file, of "
            "a folder that holds one, or of a TOML file that declares a suite."
        )
    _check(suite)
    return suite


def questions_digest(questions: Iterable[Question]) -> str:
    """SHA-256 of ids, texts and golden answers, in order."""
    rows = (question_row(question) for question in questions)
    return json_digest([[row["id"], row["question"], row["golden_answers"]] for row in rows])


def _catalogue() -> dict[str, Declaration]:
    text = resources.files("evoseek.eval").joinpath("suites.toml").read_text(encoding="utf-8")
    return {name: Declaration(**table) for name, table in tomllib.loads(text).items()}


def _of_catalogue(name: str, declared: Declaration, data: Path | None) -> Suite:
    if data is not None:
        return _read(name, declared, data)
    if declared.form == "fanoutqa":
        return _read(name, declared, packaged_file(declared.split))
    if not declared.hub:
        raise ConfigError(f"The questions of {name} have to be on this machine: give their file or folder with --data.")
    return _made(name, declared, questions_of(rows_of_hub(declared.hub, name, declared.split)), None)


def _read(name: str, declared: Declaration, path: Path) -> Suite:
    file = _file_in(path, name, declared) if path.is_dir() else path
    if declared.form == "fanoutqa":
        questions = read_fanoutqa(file)
    elif declared.form == "browsecomp-plus":
        questions = read_queries(file, file.parent / (declared.qrels or "qrel_evidence.txt"))
    else:
        questions = questions_of(rows_of_file(file))
    return _made(name, declared, questions, file.parent)


def _made(name: str, declared: Declaration, questions: Sequence[Question], folder: Path | None) -> Suite:
    return Suite(name, declared, tuple(map(evaluable_question, questions)), folder)


def _file_in(folder: Path, name: str, declared: Declaration) -> Path:
    splits = [declared.split] if declared.split else ["test", "dev"]
    places = [folder / place.format(name=name, split=split) for split in splits for place in _INSIDE]
    if declared.form == "browsecomp-plus":
        places.insert(0, folder / "browsecomp_plus_decrypted.jsonl")
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise DataError(
            f"{folder} holds no questions of {name}. Looked for "
            f"{', '.join(str(place.relative_to(folder)) for place in places)}."
        )
    return found


def _check(suite: Suite) -> None:
    declared, found = suite.declared, len(suite.questions)
    if declared.n is not None and found != declared.n:
        raise DataError(
            f"The suite {suite.name} declares {declared.n} questions, but {found} were read. A score on other "
            "questions is no score on it: get the whole set, or evaluate the file itself (--questions)."
        )
    if declared.sha256 and (digest := questions_digest(suite.questions)) != declared.sha256:
        raise DataError(
            f"The suite {suite.name} declares the checksum {declared.sha256[:12]}, but that of its questions is "
            f"{digest[:12]}: they were changed. Restore them, or correct `sha256` to {digest}."
        )
    ids = [question.id for question in suite.questions]
    if twice := next((one for one in ids if ids.count(one) > 1), None) if len(set(ids)) < len(ids) else None:
        raise DataError(f"The id {twice!r} comes twice in {suite.name}. Every question needs an id of its own.")


def _toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as TOML ({error}).") from error


def _declaration(table: Mapping[str, Any], path: Path) -> Declaration:
    try:
        declared = Declaration(**table)
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}.") from error
    if not declared.path:
        raise DataError(f"{path}: `path` is missing. Give the file or folder of the questions, relative to this file.")
    return declared
