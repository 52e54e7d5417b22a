"""`evoseek train --dry-run`: what training would do. Nothing is loaded, started or written."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from evoseek.cli.following import following
from evoseek.cli.shared import stop_if_dry
from evoseek.policy.machine import find_machine, too_many
from evoseek.policy.shape import prompts_for, read_config, shape_of
from evoseek.registry import find
from evoseek.runs import RunDirectory
from evoseek.selfplay.play import with_rules_for
from evoseek.settings import defaults_of, lookup
from evoseek.train import check_run
from evoseek.training.given import Given
from evoseek.training.inputs import inputs_of
from evoseek.training.memory_needs import memory_needs, told
from evoseek.training.settings import TrainingSettings
from evoseek.training.sources import read_questions

_TOGETHER = "torchrun --standalone --nproc-per-node {processes} -m evoseek {words}"


def say_plan(given: Given, run_dir: Path, processes: int) -> None:
    """Print the plan of the command line that this process was called with. Raises ConfigError."""
    console, run = Console(), RunDirectory(run_dir)
    settings = following(given.read(), run=run, console=console)
    settings = with_rules_for(settings, prompts_for(settings.policy.model, settings.policy.prompts))
    check_run(settings, run)
    defaults = defaults_of(settings).resolved()
    run.check_same(settings.resolved(), inputs_of(settings), may_differ=settings.may_differ(), defaults=defaults)
    stop_if_dry(outline(settings, run, processes=processes, words=sys.argv[1:]), settings, console=console)


def outline(settings: TrainingSettings, run: RunDirectory, *, processes: int, words: Sequence[str]) -> Iterator[str]:
    """The lines for settings that were checked; `words` are those of the command line after `evoseek`. Raises
    ConfigError if servers cannot be used as they are to be."""
    yield f"Model: {settings.policy.model} ({settings.policy.dtype}, {_trained(settings)}) on {settings.policy.device}"
    yield f"Plan: {settings.run.system}, {_steps(settings, run)}, in {run.path.absolute()}"
    for number, stage in enumerate(lookup(settings, "stages") or (), 1):
        until = stage.until or ("the end of the run" if stage.steps is None else f"{stage.steps} steps are made")
        yield f"  Stage {number}, {stage.name}: until {until}"
    if (path := lookup(settings, "questions.path")) is not None:
        number, each = len(read_questions(path, setting="questions.path")), lookup(settings, "questions.per_step")
        yield f"Questions: {number} of {path}, {each} in a step"
    if processes > 1:
        own = shlex.join(word for word in words if word != "--dry-run")
        yield f"Learner: {_TOGETHER.format(processes=processes, words=own)}"
    if crowded := too_many(processes, settings.policy.device):
        yield f"Warning: {crowded}"
    if not settings.learner.is_remote and (shape := shape_of(read_config(settings.policy.model))) is not None:
        machine = find_machine(settings.policy.device)
        each = f" (each of {processes} processes)" if processes > 1 else ""
        yield f"Memory: {told(memory_needs(settings, shape, processes), machine)}{each}"
    for command in _servers(settings, run, processes):
        yield f"Server: {command}"


def _trained(settings: TrainingSettings) -> str:
    return f"an adapter of rank {settings.lora.rank}" if settings.lora.rank else "all weights"


def _steps(settings: TrainingSettings, run: RunDirectory) -> str:
    """How many, and after which one a run is resumed."""
    made = max(run.saved_steps, default=0)
    return f"{settings.planned_steps} steps" + (f", resumed after step {made}" if made else "")


def _servers(settings: TrainingSettings, run: RunDirectory, processes: int) -> list[str]:
    """The command line of each server that the run would start; its port is one that is free now."""
    sampler = find("sampler", settings.sampler.name)
    if not hasattr(sampler, "planned"):
        return []
    longest, rank = settings.rollout.max_total_tokens, settings.lora.rank
    commands: Mapping[str, object] = sampler.planned(
        settings.sampler, run.path / "sampler", longest, settings.policy.dtype, rank, processes
    )
    return [str(command) for command in commands.values()]
