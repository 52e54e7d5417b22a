"""A project: a folder with `evoseek.toml`, which names the inputs and outputs of commands that run in or below it.

    [project]
    documents = "docs"         # what `evoseek index` reads
    run = "run"                # what `evoseek train` writes, and `eval` and `ask` use
    recipe = "dr-zero/tiny"    # settings beneath the file's own; may be a list
    max_words = 100            # longest passage that `evoseek index` cuts, in words
    stemming = "none"          # whether it reduces words to their stems: none or english
    engine = "hybrid"          # the search engine that it builds for: lexical, dense or hybrid
    encoder = "static"         # the encoder for vectors (dense and hybrid)

    [run]                      # all other tables are settings, as in any config file
    system = "dr-zero"

Paths are relative to the file's folder, so the project can be moved and used from folders below it. Commands also find
three files beside it by name: `reviewed.jsonl`, questions that a person judged right (`evoseek review`),
`feedback.jsonl`, conversations with a verdict (`evoseek serve agent --feedback`), and `bound.json`, how certain an
answer has to be to be shown (`evoseek eval --most-wrong`).
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from evoseek.config.settings_tree import Tree, read_tree
from evoseek.config.trust import check_owner
from evoseek.errors import ConfigError
from evoseek.storage.files import expanded, write_atomic

NAME = "evoseek.toml"
REVIEWED, FEEDBACK, BOUND = "reviewed.jsonl", "feedback.jsonl", "bound.json"
TABLE = "project"
_TYPES = {"documents": str, "run": str, "recipe": (str, list), "max_words": int} | dict.fromkeys(
    ("stemming", "engine", "encoder"), str
)
_NAMES = {"stemming": ("none", "english"), "engine": ("lexical", "dense", "hybrid")}
_PATHS = (
    *("search.index", "evaluation.index", "evaluation.path", "evaluation.reviewed", "questions.path"),
    *("questions.feedback", "support.bound", "ssp.answers", "selfplay.world", "demonstrations.path"),
)
_MAYBE_PATHS = ("policy.model", "policy.prompts", "judge.model", "reader.model", "simulator.model", "answerer.model")


@dataclass(frozen=True, slots=True)
class Project:
    """The contents of a project file. `settings` are the file's own, with absolute paths; `recipes` lie beneath
    them."""

    file: Path
    documents: Path | None = None
    run: Path | None = None
    recipes: tuple[str, ...] = ()
    max_words: int | None = None
    stemming: str | None = None
    engine: str | None = None
    encoder: str | None = None
    settings: Tree = field(default_factory=dict[str, Any])

    @property
    def folder(self) -> Path:
        return self.file.parent

    @property
    def reviewed(self) -> Path:
        return self.folder / REVIEWED

    @property
    def feedback(self) -> Path:
        return self.folder / FEEDBACK

    @property
    def index(self) -> Path | None:
        index = self.lookup("search.index")
        return Path(index) if isinstance(index, str) and index else None

    def lookup(self, dotted: str) -> object:
        """Return a setting of the file by its dotted name; None if the file lacks it."""
        table, _, key = dotted.partition(".")
        found = cast("object", self.settings.get(table))
        return cast(Tree, found).get(key) if isinstance(found, dict) else None


def find_project(start: Path) -> Project | None:
    """Find the project of a folder: its own, or the nearest one above. Raises ConfigError for a file that cannot be
    used, or belongs to another user."""
    start = start.absolute()
    for folder in (start, *start.parents):
        if (folder / NAME).is_file():
            check_owner(folder / NAME, "the project file here", f"give it with --project {folder}")
            return open_project(folder / NAME)
    return None


def open_project(file: Path) -> Project:
    """Read a project file, or the one in a folder. Raises ConfigError."""
    file = file / NAME if file.is_dir() else file
    if not file.is_file():
        raise ConfigError(
            f"There is no project in {file.parent}: it has no {NAME}. Make one with `evoseek init {file.parent}`, or "
            "give the folder of one with --project."
        )
    return read_project(read_tree(file), file.absolute())


def how_to_name(project: Project | None, line: str, *, table: str = TABLE) -> str:
    """Return the end of an error about a missing input: add this line to the project file, or make a project first."""
    if project is None:
        return f"make a project with `evoseek init`, whose {NAME} names it"
    return f"add the line `{line}` to [{table}] in {project.file}"


def read_project(tree: Mapping[str, Any], file: Path) -> Project:
    """Make a project from the tables of its file. Raises ConfigError for an unknown key or a wrong value."""
    settings = dict(tree)
    table = settings.pop(TABLE, {})
    own = cast(Tree, table) if isinstance(table, dict) else {"": table}
    for key, value in own.items():
        is_wrong = (key == "max_words" and isinstance(value, int) and value < 1) or value not in _NAMES.get(
            key, (value,)
        )
        if key not in _TYPES or not isinstance(value, _TYPES[key]) or isinstance(value, bool) or is_wrong:
            raise ConfigError(
                f"{file} has {TABLE}.{key} = {value!r}. Expected in [{TABLE}]: documents, run and recipe, each a text "
                "(recipe may be a list of texts), max_words, a whole number from 1, stemming, none or english, engine, "
                "lexical, dense or hybrid, and encoder, a text. Settings have tables of their own, such as [policy] or "
                "[search]."
            )
    recipe: object = own.get("recipe", [])
    recipes = [recipe] if isinstance(recipe, str) else cast("list[object]", recipe)
    paths = {key: _absolute(own[key], file.parent) for key in ("documents", "run") if own.get(key)}
    return Project(
        file,
        paths.get("documents"),
        paths.get("run"),
        tuple(map(str, recipes)),
        own.get("max_words"),
        own.get("stemming"),
        own.get("engine"),
        own.get("encoder"),
        _located(settings, file.parent),
    )


def keep_settings(file: Path, tables: Mapping[str, Mapping[str, str | int]]) -> None:
    """Set keys of tables in a project file; everything else stays, comments included. Raises ConfigError if the file's
    layout is not understood."""
    lines = file.read_text(encoding="utf-8").splitlines()
    for table, values in tables.items():
        if (begin := next((n for n, line in enumerate(lines) if line.split("#")[0].strip() == f"[{table}]"), -1)) < 0:
            begin = len(lines) + 1
            lines += ["", f"[{table}]"]
        for key, value in values.items():
            end = next((n for n in range(begin + 1, len(lines)) if lines[n].startswith("[")), len(lines))
            place = next((n for n in range(begin + 1, end) if lines[n].split("=")[0].strip() == key), None)
            comment = f"  #{lines[place].partition('#')[2]}" if place and "#" in lines[place] else ""
            lines[place or begin + 1 : (place or begin) + 1] = [f"{key} = {json.dumps(value)}{comment}"]
    text = "\n".join(lines) + "\n"
    try:
        kept = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        kept = dict[str, Any]()
    if any(kept.get(table, {}).get(key) != value for table, own in tables.items() for key, value in own.items()):
        raise ConfigError(f"{file} cannot be edited automatically. Set these keys of its tables by hand: {tables}.")
    write_atomic(file, text)


def _located(settings: Tree, folder: Path) -> Tree:
    """Return the settings with absolute paths; a model or a prompt set is a path if that path exists."""
    located = {key: dict(cast(Tree, value)) if isinstance(value, dict) else value for key, value in settings.items()}
    for dotted in (*_PATHS, *_MAYBE_PATHS):
        section, _, key = dotted.partition(".")
        table = cast("object", located.get(section))
        value = cast(Tree, table).get(key) if isinstance(table, dict) else None
        if isinstance(value, str) and value and (dotted in _PATHS or (folder / value).exists()):
            cast(Tree, table)[key] = str(_absolute(value, folder))
    return located


def _absolute(path: str, folder: Path) -> Path:
    return Path(os.path.normpath(folder / expanded(path)))
