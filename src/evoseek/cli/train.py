"""`evoseek train` and `evoseek sft`: begin a run from a command line, or resume it."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

from evoseek.cli.options import EVERY, Index, Model, Questions, Seed, command, finish, shared, stop_if_dry
from evoseek.config.registry import find
from evoseek.config.sections import changeable, defaults_of, is_given, lookup
from evoseek.storage.runs import RunDirectory
from evoseek.text.printable import say
from evoseek.training.interrupt import end_on_interrupt

if TYPE_CHECKING:
    from evoseek.assembly.settings import TrainingSettings
    from evoseek.assembly.sources import SettingsSources

_TOGETHER = "torchrun --standalone --nproc-per-node {processes} -m evoseek {words}"

Corpus = Annotated[
    str | None,
    typer.Option(
        "--index",
        "--corpus",
        help="Directory of an index made by `evoseek index`; in self-play, questions are written from its passages.",
    ),
]

Processes = Annotated[
    int,
    typer.Option(min=1, help="Number of processes that train together on this machine; on a CPU, one a core."),
]


@command("train", reads=EVERY, in_project=True)
def train(
    system: Annotated[
        str | None,
        typer.Argument(
            help="search-r1 or dspo (from questions), zerosearch (with a simulated engine), deepresearcher (on the "
            "web), dr-zero or ssp (self-play, from a corpus alone), sft (from demonstrations: `evoseek sft`), or "
            "package.module:Name. Default: the system of --config, or search-r1."
        ),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(help="Directory of the run. If given alone, the run is resumed. Default: the project's."),
    ] = None,
    index: Corpus = None,
    questions: Questions = None,
    model: Model = None,
    steps: Annotated[int | None, typer.Option(help="Total number of steps.")] = None,
    seed: Seed = None,
    processes: Processes = 1,
) -> None:
    """Train a policy. Ctrl-C finishes the step and saves; --run-dir alone resumes the run with its own settings.

    In a project (`evoseek init`), system, model, index and run come from evoseek.toml.

    Examples:

      evoseek train dr-zero --corpus my-index --model MODEL --config dr-zero/3b --run-dir runs/self

      evoseek train search-r1 --index my-index --questions questions.jsonl --run-dir runs/mine
    """
    options = {
        "search.index": index,
        "questions.path": questions,
        "policy.model": model,
        "run.steps": steps,
        "run.seed": seed,
    }
    begin_or_resume(run_dir, system, options, processes)


@command("sft", reads=EVERY, in_project=True)
def sft(
    run_dir: Annotated[Path, typer.Option(help="Directory of the run. If given alone, the run is resumed.")],
    demonstrations: Annotated[
        str | None, typer.Option(help="JSON lines: question (or passage), and turns with a query or the answer.")
    ] = None,
    index: Index = None,
    model: Model = None,
    questions: Questions = None,
    epochs: Annotated[int | None, typer.Option(help="Number of passes over the demonstrations.")] = None,
    seed: Seed = None,
    processes: Processes = 1,
) -> None:
    """Fine-tune a policy on demonstrations, in its own format, before it is trained with rewards.

    --questions are held-out ones, which the policy answers at every evaluation. As in `evoseek train`, Ctrl-C finishes
    the step and saves, and --run-dir alone resumes. `--model RUN_DIR` then begins a training run from the result.
    """
    options = {
        "demonstrations.path": demonstrations,
        "demonstrations.epochs": epochs,
        "search.index": index,
        "policy.model": model,
        "evaluation.path": questions,
        "run.seed": seed,
    }
    given = any(value is not None for value in options.values()) or shared().config or shared().sets
    begin_or_resume(run_dir, "sft" if given else None, options, processes)


def begin_or_resume(given_dir: Path | None, system: str | None, options: Mapping[str, object], processes: int) -> None:
    """Train with the settings of a command line, or print the plan; `options` are the settings that its own options
    gave, by dotted names. Without a directory the run is the project's."""
    from evoseek.cli.settings import chosen_for_model, training_run, training_settings
    from evoseek.training.stages import check_run

    run_dir, is_own = training_run(given_dir), given_dir is None
    given = training_settings(options, run_dir, system=system, is_of_project=is_own)
    directory = RunDirectory(run_dir, given.of_project)
    if shared().dry_run:
        _say_plan(given, directory, processes)
    if processes > 1 and "RANK" not in os.environ:
        check_run(given.read(), directory, processes)
        _train_together(given.read(), processes)
    with end_on_interrupt():
        from evoseek.report.status import is_writing_questions
        from evoseek.run import Run

    is_first = os.environ.get("RANK", "0") == "0"
    settings = chosen_for_model(given.read(), run=directory, console=Console(quiet=not is_first))
    run = Run(directory=directory, settings=settings, console=Console())
    run.train()
    if is_first and not is_writing_questions(directory.path):
        say(Console(), f"Curves and rollouts: evoseek view {shlex.quote(str(directory.path))}")
    finish(not run.is_interrupted)


def _train_together(settings: TrainingSettings, processes: int) -> NoReturn:
    with end_on_interrupt():
        from evoseek.learner.distributed import run_together
        from evoseek.models.machine import find_machine, oversubscription

    device = find_machine(settings.policy.device if is_given(settings, "policy.device") else None).device
    if words := oversubscription(processes, device):
        warnings.warn(words, stacklevel=1)
    raise typer.Exit(run_together(processes, sys.argv[1:]))


def _say_plan(given: SettingsSources, run: RunDirectory, processes: int) -> None:
    from evoseek.assembly.inputs import inputs_of
    from evoseek.cli.settings import chosen_for_model
    from evoseek.training.stages import check_asked, check_run

    console = Console()
    settings = chosen_for_model(given.read(), run=run, console=console, processes=processes if processes > 1 else None)
    check_run(settings, run, processes)
    check_asked(settings, run)
    defaults = defaults_of(settings).resolved()
    may_differ = changeable(settings, "on_resume")
    run.claim(settings.resolved(), inputs_of(settings), may_differ=may_differ, defaults=defaults, is_dry=True)
    stop_if_dry(outline(settings, run, processes=processes, words=sys.argv[1:]), settings, console=console)


def outline(settings: TrainingSettings, run: RunDirectory, *, processes: int, words: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the plan; `words` are the command line after `evoseek`. Raises ConfigError if servers cannot
    be used as configured."""
    from evoseek.assembly.inputs import questions_to_write, training_questions
    from evoseek.assembly.memory_needs import fit
    from evoseek.models.machine import oversubscription

    yield f"Model: {settings.policy.model} ({settings.policy.dtype}, {settings.trained}) on {settings.policy.device}"
    yield f"Plan: {settings.run.system}, {_steps(settings, run)}, in {run.path.absolute()}"
    for number, stage in enumerate(lookup(settings, "stages") or (), 1):
        until = stage.until or ("the end of the run" if stage.steps is None else f"{stage.steps} steps are made")
        yield f"  Stage {number}, {stage.name}: until {until}"
    number, path = lookup(settings, "cold_start.questions"), lookup(settings, "questions.path")
    if settings.demonstrates or questions_to_write(settings):
        learnt = ", and demonstrations learnt" if settings.demonstrates else ""
        yield f"Cold start: at most {number} questions written about {settings.search.index}{learnt}"
    if path is not None and not questions_to_write(settings):
        questions, changes = training_questions(settings, run)
        yield f"Questions: {len(questions)} of {path}, {lookup(settings, 'questions.per_step')} in a step"
        if changes:
            yield changes
    if processes > 1:
        own = shlex.join(word for word in words if word != "--dry-run")
        yield f"Learner: {_TOGETHER.format(processes=processes, words=own)}"
    if crowded := oversubscription(processes, settings.policy.device):
        yield f"Warning: {crowded}"
    found = fit(settings, processes)
    yield f"Memory: {found.words}" + (f" {found.remedy}" if found.state in ("over", "tight") else "")
    for server in _servers(settings, run):
        yield f"Server: {server}"


def _steps(settings: TrainingSettings, run: RunDirectory) -> str:
    made = max(run.saved_steps, default=0)
    return f"{settings.planned_steps} steps" + (f", resumed after step {made}" if made else "")


def _servers(settings: TrainingSettings, run: RunDirectory) -> list[str]:
    sampler = find("sampler", settings.sampler.name)
    if not hasattr(sampler, "planned"):
        return []
    longest, rank = settings.rollout.max_total_tokens, settings.adapter_rank
    commands: Mapping[str, object] = sampler.planned(
        settings.sampler, run.path / "sampler", longest, settings.served_dtype, rank
    )
    return [str(command) for command in commands.values()]
