"""`evoseek init`: makes a folder a project."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from evoseek.cli.project_text import Wishes, notes, project_text
from evoseek.cli.shared import stop_if_dry
from evoseek.errors import ConfigError, disk_text
from evoseek.files import expanded, nearest, write_atomic
from evoseek.policy.source import ADAPTER, REMOTE, SHIPPED, is_gguf, origin, saved_policy
from evoseek.project import NAME
from evoseek.registry import check_name
from evoseek.report.printable import say

_T = TypeVar("_T")
_OF_A_MODEL = ("config.json", ADAPTER, REMOTE)  # files by which a model's folder is known


def init(
    directory: Annotated[Path, typer.Argument(help="Folder of the project; it is made if need be.")] = Path("."),
    documents: Annotated[
        Path | None, typer.Option(help="Folder or file with the documents. Default: asked for, or documents/.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model to train: a name or a directory. Default: asked for, or tiny.")
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(metavar="NAME@URL", help="Model behind an OpenAI-compatible endpoint, to ask alone.")
    ] = None,
    system: Annotated[
        str | None, typer.Option(help="System that trains it. Default: asked for, or dr-zero (without any question).")
    ] = None,
    questions: Annotated[
        Path | None, typer.Option(help="Labelled questions, if there are any: JSON lines. System: search-r1.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing: take the defaults.")] = False,
) -> None:
    """Make a folder a project: writes evoseek.toml, which `index`, `train`, `eval`, `ask` and `serve` read there.

    Examples:

      evoseek init my-project --documents handbook/ --model tiny --yes

      evoseek init my-project --documents handbook/ --endpoint qwen@http://localhost:8000/v1
    """
    file = directory / NAME
    if file.exists():
        raise ConfigError(f"There is a project in {directory} already: {file}. Edit that file, or give another folder.")
    asks = not yes and is_interactive()
    default = str(documents or _documents(directory))
    folder = _asked("Folder of the documents", default, asks and not documents, partial(_outside, directory=directory))
    if model is None and endpoint is None:
        answer = _asked("Model (a name or a directory), or NAME@URL of an endpoint", "tiny", asks, str)
        model, endpoint = (None, answer) if "://" in answer else (answer, None)
    default = "search-r1" if endpoint or questions else "dr-zero"
    system = system or (default if endpoint or questions else _asked("System", default, asks, _system))
    wishes = Wishes(folder, model, endpoint, system, _question_file(questions) if questions else None)
    _check(directory, wishes)
    text = project_text(wishes, Path(os.path.normpath(directory.absolute())))
    stop_if_dry([f"{file} would be written:", text])
    console = Console()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_atomic(file, text)
    except OSError as error:
        raise ConfigError(disk_text(error, f"{file} cannot be written")) from error
    say(console, f"Wrote {file}.")
    for note in notes(wishes, directory):
        say(console, note)


def is_interactive() -> bool:
    """Whether somebody can answer."""
    return sys.stdin.isatty()


def _asked(what: str, default: str, asks: bool, check: Callable[[str], _T]) -> _T:
    """The answer as `check` returns it. What that refuses by ConfigError is asked for again."""

    def checked(answer: str) -> _T:
        try:
            return check(answer)
        except ConfigError as error:
            raise typer.BadParameter(str(error)) from error

    return typer.prompt(what, default=default, value_proc=checked) if asks else check(default)


def _system(name: str) -> str:
    check_name("system", name)
    return name


def _outside(documents: str, directory: Path) -> Path:
    """The folder of the documents. Raises ConfigError if it is not there, or the project lies in it."""
    found = _found(Path(documents))
    if directory.resolve().is_relative_to(found.resolve()):
        raise ConfigError(
            f"The project folder {directory} lies in the documents {found}, of which its index would become "
            "a part. Give a project folder outside of the documents."
        )
    return found


def _documents(directory: Path) -> str:
    """The first folder in the project, or here, that looks like documents."""
    places = [place / name for place in (directory, Path()) for name in ("documents", "docs")]
    return str(next((place for place in places if place.is_dir()), places[0]))


def _found(path: Path) -> Path:
    if not expanded(path).exists():
        raise ConfigError(
            f"There is nothing at {path}.{nearest(expanded(path))} Give a folder of documents with --documents (or "
            "a file of questions with --questions) that is there."
        )
    return Path(os.path.normpath(expanded(path).absolute()))


def _question_file(path: Path) -> Path:
    found = _found(path)
    if found.is_dir():
        raise ConfigError(
            f"--questions is {path}, a folder. Expected a file of JSON lines, each with question and golden_answers; "
            "documents are given with --documents."
        )
    return found


def _check(directory: Path, wishes: Wishes) -> None:
    """Raises ConfigError for what a later command would refuse."""
    check_name("system", wishes.system)
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"{directory} is a file. Give the folder of the project, new or not.")
    if wishes.model and wishes.endpoint:
        raise ConfigError("--model and --endpoint both say who answers. Give one of them.")
    name, at, url = (wishes.endpoint or "name@://").partition("@")
    if not (name and at and "://" in url):
        raise ConfigError(f"--endpoint is {wishes.endpoint!r}; expected NAME@URL, as in qwen@http://localhost:8000/v1.")
    if wishes.model:
        from evoseek.cli.settings import check_model

        check_model(wishes.model, setting="--model")
        if wishes.model not in SHIPPED:
            _check_holds_model(expanded(wishes.model))


def _check_holds_model(path: Path) -> None:
    """Raises ConfigError for a path that is there, but holds no model."""
    saved = saved_policy(path) is not None
    if not saved and origin(str(path)) != str(path):
        raise ConfigError(
            f"--model is {path}, a run that has saved no checkpoint yet (one is saved every run.checkpoint_every "
            "steps). Give a run that has one, or the model that it began with."
        )
    holds = saved or any((path / name).is_file() for name in _OF_A_MODEL)
    if path.is_dir() and not holds:
        raise ConfigError(
            f"--model is {path}, a folder without a model: it has no config.json. Give a folder that holds a model or "
            "a run, a GGUF file, or a name such as tiny."
        )
    if path.is_file() and not is_gguf(str(path)):
        raise ConfigError(f"--model is {path}, a file that is not GGUF. Give the folder that holds the model.")
