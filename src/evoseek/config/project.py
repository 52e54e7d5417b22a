"""A project: a folder with `evoseek.toml`, which says what the commands that run there, or below it, work on.

    [project]
    documents = "docs"         # what `evoseek index` reads
    run = "run"                # what `evoseek train` writes, and `eval` and `ask` use
    recipe = "dr-zero/tiny"    # settings beneath those of the file; may be a list
    max_words = 100            # longest passage that `evoseek index` cuts, in words
    stemming = "none"          # whether it reduces words to their stems: none or english
    engine = "hybrid"          # what it builds for: lexical, dense or hybrid
    encoder = "static"         # what makes the vectors of the last two

    [run]                      # everything else are settings as in any config file
    system = "dr-zero"

Relative paths are relative to the file's folder, so the project can be moved and used from folders below it. Beside the
file may lie what people have said, which the commands find by its name: `reviewed.jsonl`, the questions that were
judged right (`evoseek review`), and `feedback.jsonl`, conversations with a verdict (`evoseek serve agent --feedback`).
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
REVIEWED, FEEDBACK = "reviewed.jsonl", "feedback.jsonl"
TABLE = "project"
_TYPES = {"documents": str, "run": str, "recipe": (str, list), "max_words": int} | dict.fromkeys(
    ("stemming", "engine", "encoder"), str
)
_NAMES = {"stemming": ("none", "english"), "engine": ("lexical", "dense", "hybrid")}
_PATHS = (
    *("search.index", "evaluation.index", "evaluation.path", "evaluation.reviewed", "questions.path"),
    *("questions.feedback", "ssp.answers", "selfplay.world", "demonstrations.path"),
)
_MAYBE_PATHS = ("policy.model", "policy.prompts", "judge.model", "reader.model", "simulator.model", "answerer.model")


@dataclass(frozen=True, slots=True)
class Project:
    """A project file, read. `settings` are those of the file alone, with absolute paths; `recipes` lie beneath them."""

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
        """Return a setting of the file by its dotted name; None if the file does not have it."""
        table, _, key = dotted.partition(".")
        found = cast("object", self.settings.get(table))
        return cast(Tree, found).get(key) if isinstance(found, dict) else None


def find_project(start: Path) -> Project | None:
    """Return the project of a folder: its own, or the nearest one above. Raises ConfigError for a file that cannot be
    used, or is another user's."""
    start = start.absolute()
    for folder in (start, *start.parents):
        if (folder / NAME).is_file():
            check_owner(folder / NAME, "the project file here", f"give it with --project {folder}")
            return open_project(folder / NAME)
    return None


def open_project(file: Path) -> Project:
    """Read a project file, or that of a folder. Raises ConfigError."""
    file = file / NAME if file.is_dir() else file
    if not file.is_file():
        raise ConfigError(
            f"There is no project in {file.parent}: it has no {NAME}. Make one with `evoseek init {file.parent}`, or "
            "give the folder of one with --project."
        )
    return read_project(read_tree(file), file.absolute())


def how_to_name(project: Project | None, line: str, *, table: str = TABLE) -> str:
    """Return how to name what a command misses, as the end of an error: by this line in the file of the project, or in
    that of a new project if there is none."""
    if project is None:
        return f"make a project with `evoseek init`, whose {NAME} names it"
    return f"add the line `{line}` to [{table}] in {project.file}"


def read_project(tree: Mapping[str, Any], file: Path) -> Project:
    """The project that a file holds, whose tables are given. Raises ConfigError for an unknown key or a wrong value."""
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
    """Set keys of tables in a project file; all else, comments included, stays. Raises ConfigError if the file is
    written in a way that this does not know."""
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
        raise ConfigError(f"{file} cannot be changed. Set these keys of its tables by hand: {tables}.")
    write_atomic(file, text)


def _located(settings: Tree, folder: Path) -> Tree:
    """Return the settings with absolute paths; a model or a prompt set is a path if it is there."""
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
