"""The options that commands share without naming them: `--project` and `--dry-run`; `main` adds them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from evoseek.effect import changed
from evoseek.files import expanded
from evoseek.project import Project, find_project, open_project
from evoseek.report.printable import say
from evoseek.settings import Section, defaults_of, lookup
from evoseek.training.given import Given
from evoseek.training.settings import TrainingSettings

_OPTIONS: Mapping[str, object] = {
    "project": Annotated[
        Path | None, typer.Option("--project", help="Folder with evoseek.toml. Default: this one, or one above.")
    ],
    "dry_run": Annotated[bool, typer.Option("--dry-run", help="Print the settings and the plan; do nothing.")],
}
_DEFAULTS: Mapping[str, object] = {"project": None, "dry_run": False}


@dataclass(frozen=True, slots=True)
class _Shared:
    project: Path | None = None
    dry_run: bool = False


_NOTHING = _Shared()
_given: ContextVar[_Shared] = ContextVar("given", default=_NOTHING)


def with_shared(command: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """The command with these shared options beside its own, as typer reads them from its signature."""

    @wraps(command)
    def run(*words: Any, **values: Any) -> Any:
        mine = {name: values.pop(name) for name in names}
        token = _given.set(replace(_NOTHING, **mine))
        try:
            return command(*words, **values)
        finally:
            _given.reset(token)

    own = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS[name], annotation=_OPTIONS[name])
        for name in names
    ]
    signature = inspect.signature(command, eval_str=True)
    vars(run)["__signature__"] = signature.replace(parameters=[*signature.parameters.values(), *own])
    run.__annotations__ = {**command.__annotations__, **{name: _OPTIONS[name] for name in names}}
    return run


def project() -> Project | None:
    """The project of --project, or of this folder. Raises ConfigError."""
    folder = _given.get().project
    return find_project(Path.cwd()) if folder is None else open_project(expanded(folder))


def is_dry() -> bool:
    """Whether the command is only to say what it would do."""
    return _given.get().dry_run


def stop_if_dry(
    plan: Iterable[str],
    settings: Mapping[str, object] | TrainingSettings | None = None,
    *,
    console: Console | None = None,
) -> None:
    """With --dry-run, print the settings and the plan and end the command. To be called once everything was checked,
    before anything is loaded, started or written."""
    if not is_dry():
        return
    console = console or Console()
    for line in (*_settings_lines(settings or {}), *plan, "Nothing was done (--dry-run)."):
        say(console, line)
    raise typer.Exit


def who_answers(given: Given, run_dir: Path | None) -> str:
    """Who answers with these settings, in words."""
    settings = given.read(light=True)
    if asked := settings.asked.model or settings.asked.base_url:
        return f"the model {asked}" + (f" at {settings.asked.base_url}" if settings.asked.base_url else "")
    return f"the policy of the run {run_dir}" if run_dir else f"the policy {settings.policy.model}"


def _settings_lines(settings: Mapping[str, object] | TrainingSettings) -> Iterator[str]:
    """Every setting; at last those that differ from the defaults."""
    if isinstance(settings, Mapping):
        yield from (f"  {key} = {_shown(value)}" for key, value in settings.items())
        return
    other = changed(settings, defaults_of(settings))
    yield "Settings at their defaults:"
    yield from (f"  {key} = {_shown(lookup(settings, key))}" for key in _names(settings) if key not in other)
    yield "Settings that differ from the defaults:"
    yield from (f"  {key} = {_shown(lookup(settings, key))}" for key in other)


def _names(settings: Section, prefix: str = "") -> Iterator[str]:
    """Every setting by its dotted name."""
    for key in type(settings).model_fields:
        value: object = getattr(settings, key)
        if isinstance(value, Section):
            yield from _names(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _shown(value: object) -> str:
    return json.dumps(value, default=lambda part: part.resolved() if isinstance(part, Section) else str(part))
