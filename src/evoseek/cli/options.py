"""What commands share: options, the project and --dry-run (`main` adds these two), and the model that answers."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from evoseek.assembly.settings import TrainingSettings
from evoseek.assembly.sources import SettingsSources, gather
from evoseek.config.project import FEEDBACK, Project, find_project, how_to_name, open_project
from evoseek.config.sections import Section, changed, each_setting, lookup
from evoseek.errors import ConfigError
from evoseek.storage.files import expanded
from evoseek.storage.jsonl import is_begun
from evoseek.text.printable import say
from evoseek.training.interrupt import INTERRUPTED

RunDir = Annotated[Path | None, typer.Option(help="Directory of a run: its last checkpoint is used.")]
Index = Annotated[str | None, typer.Option(help="Directory of an index made by `evoseek index`.")]
Questions = Annotated[str | None, typer.Option(help="JSON lines, a JSON array or CSV: question, golden_answers.")]
Model = Annotated[
    str | None,
    typer.Option(help="`tiny`, `smollm2-135m`, a directory (also of a run), a GGUF file, or a Hugging Face name."),
]
JudgeModel = Annotated[str | None, typer.Option("--model", help="The model that judges, as in judge.model.")]
Seed = Annotated[int | None, typer.Option(help="Seed of all random numbers.")]
FixedSeed = Annotated[int, typer.Option("--seed", help="Seed of all random numbers.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as a JSON object, everything else on stderr.")]


def _growing(path: Path) -> Path:
    """Refuse a file that cannot be resumed before anything is loaded. Raises ConfigError."""
    is_begun(path)
    return path


GrowingFile = Annotated[
    Path, typer.Argument(help="The JSONL file to write. The same command resumes it.", callback=_growing)
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
        typer.Option("--config", help="A TOML file of settings, or a recipe such as dr-zero/3b; the last one wins."),
    ],
    "sets": Annotated[list[str] | None, typer.Option("--set", help="A setting, such as learner.learning_rate=1e-4.")],
    "project": Annotated[
        Path | None, typer.Option("--project", help="Folder with evoseek.toml. Default: this one, or one above.")
    ],
    "dry_run": Annotated[bool | None, typer.Option("--dry-run", help="Print the settings and the plan; do nothing.")],
}

_ROLLOUTS = (
    "policy.* lora.* sampler.* search.* environment.* tools rollout.* web.* browse.* reader.* run.seed run.system"
)
_PLAIN_JUDGE = "judge.* policy.prompts policy.device policy.dtype run.seed run.max_invalid"

# The settings that a command other than `train` accepts with --set; a file may be shared with other commands.
READ_BY = {
    "ask": f"{_ROLLOUTS} answerer.* support.*",
    "search": "search.*",
    **dict.fromkeys(("serve agent", "serve mcp"), f"{_ROLLOUTS} answerer.* support.*"),
    "eval": f"{_ROLLOUTS} answerer.* support.* questions.path reward.* judge.* evaluation.path evaluation.index "
    "evaluation.limit evaluation.temperature",
    "prompt": f"{_ROLLOUTS} ssp.* selfplay.* proposer.*",
    "collect": f"{_ROLLOUTS} answerer.* reward.* judge.* evaluation.path run.max_invalid",
    "propose": "policy.* lora.* sampler.* search.* environment.* tools rollout.* reward.* judge.* proposer.* filters.* "
    "verification.* selfplay.* ssp.answers run.*",
    "simulator collect": "policy.* lora.* sampler.* search.* questions.path rollout.* run.seed run.system",
    "simulator label": _PLAIN_JUDGE,
    "simulator tune": "policy.* lora.* learner.* simulator.* search.top_k run.seed",
    "simulator check": "policy.* simulator.* search.top_k run.seed",
    "filter": "judge.* policy.* lora.* sampler.* rollout.* run.seed run.max_invalid",
}


@dataclass(frozen=True, slots=True)
class Shared:
    """The command that runs, and the values of the options that it shares with others."""

    command: str = ""
    config: Sequence[Path] = ()
    sets: Sequence[str] = ()
    project: Path | None = None
    dry_run: bool = False


_NOTHING = Shared()
_given: ContextVar[Shared] = ContextVar("given", default=_NOTHING)


def shared() -> Shared:
    """The shared options of the command that runs."""
    return _given.get()


def with_shared(command: Callable[..., Any], name: str, *names: str) -> Callable[..., Any]:
    """The command of this name with these shared options beside its own, as typer reads them from its signature."""

    @wraps(command)
    def run(*words: Any, **values: Any) -> Any:
        for option, value in values.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigError(f"--{option.replace('_', '-')} is {value}. Expected a finite number, such as 0.5.")
        mine = {name: value for name in names if (value := values.pop(name, None)) is not None}
        token = _given.set(Shared(name, **mine))
        try:
            return command(*words, **values)
        finally:
            _given.reset(token)

    own = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_OPTIONS[name])
        for name in names
    ]
    signature = inspect.signature(command, eval_str=True)
    vars(run)["__signature__"] = signature.replace(parameters=[*signature.parameters.values(), *own])
    run.__annotations__ = {**command.__annotations__, **{name: _OPTIONS[name] for name in names}}
    return run


def project() -> Project | None:
    """The project of --project, or of this folder. Raises ConfigError."""
    folder = shared().project
    return find_project(Path.cwd()) if folder is None else open_project(expanded(folder))


def checked_project() -> Project | None:
    """`project`, with settings that are valid. For commands that take but a path from it:
    a misspelt table would look like one that is missing. Raises ConfigError."""
    if (own := project()) is not None:
        gather(project=own).read()
    return own


def named_run() -> Path:
    """The run that the project names. Raises ConfigError if there is none."""
    own = checked_project()
    if own is None or own.run is None:
        raise ConfigError(
            "Which run? Give the directory of one, such as runs/mine, or " + how_to_name(own, 'run = "run"') + "."
        )
    return own.run


def feedback_path(run: Path | None) -> Path:
    """The file of conversations with a verdict: the project's, or else the run's. Raises ConfigError without either."""
    own = project()
    if own is None and run is None:
        raise ConfigError(
            "Conversations with a verdict are kept in a project or in a run, and there is neither. Make a project with "
            "`evoseek init`, or give a run."
        )
    return own.feedback if own is not None else Path(str(run)) / FEEDBACK


def named_index() -> Path:
    """The index that the project names. Raises ConfigError if there is none."""
    own = checked_project()
    if own is None or own.index is None:
        remedy = how_to_name(own, 'index = "index"', table="search")
        raise ConfigError(f"Which index? Give the directory of one that `evoseek index` made, or {remedy}.")
    return own.index


def is_read(key: str, command: str | None = None) -> bool:
    """Whether a command, or else the one that runs, makes use of a setting."""
    command = shared().command if command is None else command
    return command not in READ_BY or any(fnmatch(key, pattern) for pattern in READ_BY[command].split())


def stop_if_dry(
    plan: Iterable[str],
    settings: Mapping[str, object] | TrainingSettings | None = None,
    *,
    console: Console | None = None,
) -> None:
    """With --dry-run, print the settings and the plan and end the command. To be called once everything was checked,
    before anything is loaded, started or written."""
    if not shared().dry_run:
        return
    console = console or Console()
    for line in (*_settings_lines(settings or {}), *plan, "Nothing was done (--dry-run)."):
        say(console, line)
    raise typer.Exit


def answerer_name(given: SettingsSources, run_dir: Path | None) -> str:
    """What answers with these settings, in words."""
    settings = given.read()
    if model := settings.answerer.model or settings.answerer.base_url:
        return f"the model {model}" + (f" at {settings.answerer.base_url}" if settings.answerer.base_url else "")
    return f"the policy of the run {run_dir}" if run_dir else f"the policy {settings.policy.model}"


def _settings_lines(settings: Mapping[str, object] | TrainingSettings) -> Iterator[str]:
    """Every setting that the command reads; at last those that differ from the defaults."""
    if isinstance(settings, Mapping):
        yield from (f"  {key} = {_shown(value)}" for key, value in settings.items())
        return
    every = filter(is_read, (name for name, _, _ in each_setting(settings)))
    other = list(filter(is_read, changed(settings)))
    yield "Settings at their defaults:"
    yield from (f"  {key} = {_shown(lookup(settings, key))}" for key in every if key not in other)
    yield "Settings that differ from the defaults:"
    yield from (f"  {key} = {_shown(lookup(settings, key))}" for key in other)


def _shown(value: object) -> str:
    return json.dumps(
        value, ensure_ascii=False, default=lambda part: part.resolved() if isinstance(part, Section) else str(part)
    )


def new_group(help: str) -> typer.Typer:
    """A group of commands. Help is plain text: as markup, [section] in it would be taken for a style and not shown."""
    return typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=help)


def finish(finished: bool) -> None:
    """End the command with the status of Ctrl-C if that ended its work."""
    if not finished:
        raise typer.Exit(INTERRUPTED)


def resolve_answerer(
    answerer: str | None, run_dir: Path | None, model: str | None
) -> tuple[Path | None, dict[str, object]]:
    """The run that is named, or the settings of the model or endpoint. Raises ConfigError if two are named, or for an
    endpoint without a name."""
    if answerer is None:
        return run_dir, {} if model is None else {"policy.model": model}
    if run_dir is not None or model is not None:
        raise ConfigError(
            f"{answerer} and {'--run-dir' if run_dir else '--model'} both name what answers. Give one of them."
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
