"""Suites: question sets with what a score on them must declare (metric, split, n, licence).

A suite is named in the catalogue (`suites.toml`), or is a question file or a folder, which declares nothing.
Questions are JSON lines,
Parquet or data sets of the Hugging Face hub (Parquet and the hub need the extra `data`), in the shapes that FlashRAG
and Search-R1 publish; `docs/benchmarks.py` converts FanOutQA and BrowseComp-Plus.

    FlashRAG    {"id": "test_0", "question": "...", "golden_answers": ["..."], "metadata": {...}}
    Search-R1   the same keys beside `data_source`, or only
                {"data_source": "nq", "prompt": [{"content": "... Question: ..."}],
                 "reward_model": {"ground_truth": {"target": ["..."]}}, "extra_info": {"index": 0}}

Files of Search-R1 hold several sets with the same ids, so an id begins with its source: `nq/test_0`.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from evoseek.errors import ConfigError, DataError, did_you_mean
from evoseek.eval.draw import check_ids
from evoseek.questions.questions import parse_question, question_row
from evoseek.storage.files import expanded, json_digest, nearest
from evoseek.text.normalization import evaluable_question
from evoseek.text.rows import read_rows
from evoseek.types import Question

SuiteRow = Mapping[str, Any]


def rows_of_file(path: Path) -> list[SuiteRow]:
    """Read the rows of a file of JSON lines or Parquet. Raises DataError if it cannot be read."""
    if path.suffix != ".parquet":
        return read_rows(path, lambda row, _: row, noun="question", keys="`question` and `golden_answers`")
    try:
        return _datasets().Dataset.from_parquet(str(path), keep_in_memory=True).to_list()
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as Parquet ({error}).") from error


def rows_of_hub(name: str, config: str, split: str) -> list[SuiteRow]:
    """Load the rows of a data set of the Hugging Face hub. Raises DataError if it cannot be loaded."""
    try:
        return _datasets().load_dataset(name, config, split=split).to_list()
    except Exception as error:
        raise DataError(
            f"{config} of {name} cannot be loaded from the Hugging Face hub ({type(error).__name__}: {error}). Without "
            "a network, give the folder of a copy with --data."
        ) from error


def questions_of(rows: Iterable[SuiteRow]) -> list[Question]:
    """Read the questions of rows, in order. Raises DataError that names the row if one cannot be used."""
    questions: list[Question] = []
    for number, row in enumerate(rows, 1):
        try:
            questions.append(parse_question(_plain(row), str(number)))
        except (DataError, LookupError, TypeError, AttributeError) as error:
            raise DataError(f"Row {number} is not a question: {error}") from error
    return questions


def _plain(row: SuiteRow) -> dict[str, object]:
    """Bring a row into FlashRAG's shape."""
    if "data_source" not in row:
        return dict(row)
    source, model = str(row["data_source"]), row.get("reward_model")
    text, golden = row.get("question"), row.get("golden_answers")
    if text is None:
        text = str(row["prompt"][-1]["content"]).rpartition("Question:")[2].strip()
    if golden is None and isinstance(model, Mapping):
        golden = model["ground_truth"]["target"]
    identifier = row.get("id")
    if identifier is None:  # also for a Parquet column without a value
        identifier = (row.get("extra_info") or {}).get("index")
    named = {} if identifier is None else {"id": f"{source}/{identifier}"}
    return {**named, "question": text, "golden_answers": golden, "source": source, "metadata": row.get("metadata")}


def _datasets() -> Any:
    try:
        return importlib.import_module("datasets")
    except ImportError as error:
        raise ConfigError(
            "Parquet files and data sets of the Hugging Face hub need the package datasets: pip install "
            "'evoseek[data]'."
        ) from error


_INSIDE = ("{name}/{split}.jsonl", "{name}/{split}.parquet", "{split}.jsonl", "{split}.parquet", "questions.jsonl")


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declaration of a suite; `hub` is the Hugging Face data set with its questions."""

    metric: str = ""
    split: str = "test"
    n: int | None = None
    licence: str = ""
    hub: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite with its questions. `folder` is their folder, if any."""

    name: str
    declared: Declaration
    questions: tuple[Question, ...]
    folder: Path | None = None

    @property
    def index(self) -> str | None:
        """The index beside the questions, as in a generated world's folder, or None."""
        index = self.folder / "index" if self.folder else None
        return str(index) if index and index.is_dir() else None

    def about(self) -> dict[str, object]:
        own = self.declared
        return {
            "name": self.name,
            "metric": own.metric,
            "split": own.split,
            "licence": own.licence,
            "n": len(self.questions),
            "sha256": questions_digest(self.questions),
        }


def load_suite(name: str, data: Path | None = None) -> Suite:
    """Load the suite of a name or path; `data` is a folder with the questions of a suite of the catalogue.

    Raises ConfigError for an unknown name, DataError for questions that cannot be read, share an id, or are not as many
    as declared.
    """
    text, path = resources.files("evoseek.eval").joinpath("suites.toml").read_text(encoding="utf-8"), expanded(name)
    catalogue = {name: Declaration(**table) for name, table in tomllib.loads(text).items()}
    if name in catalogue:
        declared = catalogue[name]
        if data is None and not declared.hub:
            raise ConfigError(
                f"The questions of {name} must be on this machine. Give their file or folder with --data."
            )
        if data is not None:
            suite = _read(name, declared, data)
        else:
            suite = _made(name, declared, rows_of_hub(declared.hub, name, declared.split), None)
    elif path.exists():
        suite = _read(path.stem, Declaration(split=""), path)
    else:
        hint = did_you_mean(name, catalogue) or nearest(path)
        raise ConfigError(
            f"There is no suite {name!r}.{hint} Give one of {', '.join(catalogue)}; or the path of a question file or "
            "of its folder."
        )
    _check(suite)
    return suite


def questions_digest(questions: Iterable[Question]) -> str:
    """Return the SHA-256 of ids, texts and golden answers, in order."""
    rows = (question_row(question) for question in questions)
    return json_digest([[row["id"], row["question"], row["golden_answers"]] for row in rows])


def _read(name: str, declared: Declaration, path: Path) -> Suite:
    file = _file_in(path, name, declared) if path.is_dir() else path
    return _made(name, declared, rows_of_file(file), file.parent)


def _made(name: str, declared: Declaration, rows: Iterable[SuiteRow], folder: Path | None) -> Suite:
    return Suite(name, declared, tuple(map(evaluable_question, questions_of(rows))), folder)


def _file_in(folder: Path, name: str, declared: Declaration) -> Path:
    splits = [declared.split] if declared.split else ["test", "dev"]
    places = [place.format(name=name, split=split) for split in splits for place in _INSIDE]
    found = next((folder / place for place in places if (folder / place).is_file()), None)
    if found is None:
        raise DataError(f"{folder} holds no questions of {name}. Expected one of {', '.join(places)}.")
    return found


def _check(suite: Suite) -> None:
    declared, found = suite.declared, len(suite.questions)
    if declared.n is not None and found != declared.n:
        raise DataError(
            f"The suite {suite.name} declares {declared.n} questions, but {found} were read. Get the whole set, or "
            "evaluate the file itself (--questions)."
        )
    check_ids(suite.questions)
