"""What commands share, and how each declares it: settings, project, --dry-run."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from evoseek.config.project import BOUND, FEEDBACK, Project, find_project, how_to_name, open_project
from evoseek.errors import ConfigError
from evoseek.storage.files import expanded
from evoseek.storage.jsonl import is_begun
from evoseek.text.printable import say
from evoseek.training.interrupt import INTERRUPTED

if TYPE_CHECKING:
    from evoseek.assembly.settings import TrainingSettings
    from evoseek.assembly.sources import SettingsSources

RunDir = Annotated[Path | None, typer.Option(help="Directory of a run: its last checkpoint is used.")]
Index = Annotated[str | None, typer.Option(help="Directory of an index made by `evoseek index`.")]
Questions = Annotated[str | None, typer.Option(help="JSON lines, a JSON array or CSV: question, golden_answers.")]
Model = Annotated[
    str | None,
    typer.Option(help="`tiny`, `smollm2-135m`, a directory (also of a run), a GGUF file, or a Hugging Face name."),
]
JudgeModel = Annotated[str | None, typer.Option("--model", help="Model that judges, as in judge.model.")]
Seed = Annotated[int | None, typer.Option(help="Seed of all random numbers.")]
FixedSeed = Annotated[int, typer.Option("--seed", help="Seed of all random numbers.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as a JSON object, all else on stderr.")]


def _growing(path: Path) -> Path:
    """Refuse a file that cannot be resumed, before anything is loaded. Raises ConfigError."""
    is_begun(path)
    return path


GrowingFile = Annotated[
    Path, typer.Argument(help="JSONL file to write. The same command resumes it.", callback=_growing)
]
AnswererArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN|MODEL|ENDPOINT",
        help="What answers: a run (as --run-dir), a model (as --model), or NAME@URL of an OpenAI-compatible "
        "endpoint. Default: the project's run.",
    ),
]

_OPTIONS: Mapping[str, object] = {
    "config": Annotated[
        list[Path] | None,
        typer.Option("--config", help="TOML file of settings, or a recipe such as dr-zero/3b; the last one wins."),
    ],
    "sets": Annotated[list[str] | None, typer.Option("--set", help="Setting, such as learner.learning_rate=1e-4.")],
    "folder": Annotated[
        Path | None,
        typer.Option("--project", help="Folder with evoseek.toml. Default: this one, or one above."),
    ],
    "dry_run": Annotated[bool | None, typer.Option("--dry-run", help="Print the settings and the plan; do nothing.")],
}
EVERY = "*"
ROLLOUTS = (
    "policy.* lora.* sampler.* search.* environment.* tools rollout.* web.* browse.* reader.* run.seed run.system"
)
JUDGE = "judge.* policy.prompts policy.device policy.dtype run.seed run.max_invalid"


@dataclass(frozen=True, slots=True)
class DeclaredCommand:
    """A command's declaration. `reads` are patterns of the settings that it uses. With --set it accepts no others; a
    file of settings may be shared with other commands."""

    name: str = ""
    reads: str = ""
    in_project: bool = False

    def uses(self, key: str) -> bool:
        """Return whether the command uses a setting."""
        return not self.reads or any(fnmatch(key, pattern) for pattern in self.reads.split())


COMMANDS: dict[str, DeclaredCommand] = {}
"""Every declared command, by its name."""


@dataclass(frozen=True)
class Shared:
    """The command that runs, and the values of the options that it shares with others."""

    command: DeclaredCommand = DeclaredCommand()
    config: Sequence[Path] = ()
    sets: Sequence[str] = ()
    folder: Path | None = None
    dry_run: bool = False

    @cached_property
    def project(self) -> Project | None:
        return find_project(Path.cwd()) if self.folder is None else open_project(expanded(self.folder))


_given: ContextVar[Shared | None] = ContextVar("given", default=None)


def shared() -> Shared:
    """Return the shared options of the command that runs."""
    return _given.get() or Shared()


@contextmanager
def running(name: str, **values: Any) -> Generator[None]:
    """Run the block as the command of this name, with these values of `Shared`."""
    token = _given.set(Shared(COMMANDS[name], **values))
    try:
        yield
    finally:
        _given.reset(token)


def command(
    name: str, *, reads: str = "", in_project: bool = False, only_reads: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare a command: its name, and as in `DeclaredCommand` what it reads and whether it works in a project. Add the
    shared options: --config and --set for settings, --project, and --dry-run unless it `only_reads`."""
    COMMANDS[name] = DeclaredCommand(name, reads, in_project)
    options = {"config": reads, "sets": reads, "folder": in_project, "dry_run": not only_reads}
    names = [option for option, has_it in options.items() if has_it]

    def declared(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def run(*words: Any, **values: Any) -> None:
            for option, value in values.items():
                if isinstance(value, float) and not math.isfinite(value):
                    text = f"--{option.replace('_', '-')} is {value}"
                    raise ConfigError(f"{text}. Expected a finite number, such as 0.5.")
            mine = {option: value for option in names if (value := values.pop(option, None)) is not None}
            with running(name, **mine):
                function(*words, **values)

        own = [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_OPTIONS[option])
            for option in names
        ]
        signature = inspect.signature(function, eval_str=True)
        vars(run)["__signature__"] = signature.replace(parameters=[*signature.parameters.values(), *own])
        run.__annotations__ = {**function.__annotations__, **{option: _OPTIONS[option] for option in names}}
        return run

    return declared


def project() -> Project | None:
    """Return the project of the command that runs. Raises ConfigError."""
    return shared().project


def checked_project() -> Project | None:
    """Return `project` with its settings checked, for commands that take only a path from it: a misspelt table would
    look like a missing one. Raises ConfigError."""
    from evoseek.assembly.sources import gather

    if (own := project()) is not None:
        gather(project=own).read()
    return own


def named_run() -> Path:
    """Return the run that the project names. Raises ConfigError if there is none."""
    own = checked_project()
    if own is None or own.run is None:
        raise ConfigError(
            "Which run? Give the directory of one, such as runs/mine, or " + how_to_name(own, 'run = "run"') + "."
        )
    return own.run


def feedback_path(run: Path | None) -> Path:
    """Return the file of conversations with a verdict: the project's, or else the run's. Raises ConfigError without
    either."""
    own = project()
    if own is None and run is None:
        raise ConfigError(
            "Conversations with a verdict are kept in a project or a run, but neither was found. Make a project with "
            "`evoseek init`, or give a run."
        )
    return own.feedback if own is not None else Path(str(run)) / FEEDBACK


def bound_path(run: Path | None) -> Path | None:
    """Return the file of the bound on wrong answers: the run's, or else the project's; None without either."""
    own = project()
    folder = run or (own.folder if own is not None else None)
    return folder / BOUND if folder is not None else None


def named_index() -> Path:
    """Return the index that the project names. Raises ConfigError if there is none."""
    own = checked_project()
    if own is None or own.index is None:
        remedy = how_to_name(own, 'index = "index"', table="search")
        raise ConfigError(f"Which index? Give the directory of one that `evoseek index` made, or {remedy}.")
    return own.index


def stop_if_dry(
    plan: Iterable[str],
    settings: Mapping[str, object] | TrainingSettings | None = None,
    *,
    console: Console | None = None,
) -> None:
    """With --dry-run, print the settings and the plan and end the command. Call it after every check, and before
    anything is loaded, started or written."""
    if not shared().dry_run:
        return
    console = console or Console()
    for line in (*_settings_lines(settings or {}), *plan, "Nothing was done (--dry-run)."):
        say(console, line)
    raise typer.Exit


def answerer_name(given: SettingsSources, run_dir: Path | None) -> str:
    """Return what answers with these settings, in words."""
    settings = given.read()
    if model := settings.answerer.model or settings.answerer.base_url:
        return f"the model {model}" + (f" at {settings.answerer.base_url}" if settings.answerer.base_url else "")
    return f"the policy of the run {run_dir}" if run_dir else f"the policy {settings.policy.model}"


def _settings_lines(settings: Mapping[str, object] | TrainingSettings) -> Iterator[str]:
    """Yield every setting that the command reads; those that differ from the defaults come last."""
    if isinstance(settings, Mapping):
        yield from (f"  {key} = {_shown(value)}" for key, value in settings.items())
        return
    from evoseek.config.sections import changed, each_setting, lookup

    uses = shared().command.uses
    every = filter(uses, (name for name, _, _ in each_setting(settings)))
    other = list(filter(uses, changed(settings)))
    yield "Settings at their defaults:"
    yield from (f"  {key} = {_shown(lookup(settings, key))}" for key in every if key not in other)
    yield "Settings that differ from the defaults:"
    yield from (f"  {key} = {_shown(lookup(settings, key))}" for key in other)


def _shown(value: object) -> str:
    return json.dumps(
        value, ensure_ascii=False, default=lambda part: part.resolved() if hasattr(part, "resolved") else str(part)
    )


def new_group(help: str) -> typer.Typer:
    """Return a group of commands. Help is plain text: markup would hide a [section] in it."""
    return typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=help)


def finish(finished: bool) -> None:
    """End the command with the status of Ctrl-C if that ended its work."""
    if not finished:
        raise typer.Exit(INTERRUPTED)


def resolve_answerer(
    answerer: str | None, run_dir: Path | None, model: str | None
) -> tuple[Path | None, dict[str, object]]:
    """Return the named run, or the settings of the model or endpoint. Raises ConfigError if two are named, or for an
    endpoint without a name."""
    if answerer is None:
        return run_dir, {} if model is None else {"policy.model": model}
    if run_dir is not None or model is not None:
        raise ConfigError(
            f"{answerer} and {'--run-dir' if run_dir else '--model'} both name a policy or model. Give one of them."
        )
    name, at, url = answerer.partition("@")
    if "://" in answerer:
        if not at or "://" in name or not name:
            raise ConfigError(
                f"{answerer} names no model at the endpoint. Expected NAME@URL, as in qwen@{url or answerer}."
            )
        return None, {"answerer.model": name, "answerer.base_url": url}
    if (expanded(answerer) / "config.json").is_file() and (expanded(answerer) / "checkpoints").is_dir():
        return expanded(answerer), {}
    return None, {"policy.model": answerer}
