"""`evoseek doctor`: finds problems before a command runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from evoseek.cli.options import EVERY, Index, Json, Model, Questions, command, project, shared
from evoseek.errors import EvoseekError, disk_text, is_of_disk
from evoseek.text.printable import printable
from evoseek.training.interrupt import end_on_interrupt

if TYPE_CHECKING:
    from evoseek.cli.doctor.checks import Diagnosis, DoctorContext
    from evoseek.config.project import Project

FAULTY = 1  # the exit status with a fault
_STYLES = {"ok": "green", "warning": "yellow", "fault": "red"}


@command("doctor", reads=EVERY, in_project=True, only_reads=True)
def doctor(
    system: Annotated[str | None, typer.Argument(help="A system. Default: the project's, or search-r1.")] = None,
    run_dir: Annotated[Path | None, typer.Option(help="Directory of the run. Default: the project's.")] = None,
    index: Index = None,
    questions: Questions = None,
    model: Model = None,
    processes: Annotated[int, typer.Option(min=1, help="Number of processes that would train together.")] = 1,
    probe: Annotated[
        bool | None,
        typer.Option(
            "--probe/--no-probe",
            help="Load the model and try a few rollouts and proposals, if nothing is wrong. By default only if "
            "this needs no service.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Check what a command would need, with the options of `evoseek train`: environment, device, memory, disk, model,
    chat template, prompt, index, questions, judge, providers, servers, and what would be trained.

    Print one diagnosis a line, each with one remedy; end with status 1 if there is a fault. Write nothing.
    """
    options = {"search.index": index, "questions.path": questions, "policy.model": model}
    with end_on_interrupt():
        from evoseek.cli.doctor.checks import refused

    try:
        own = project()
        diagnoses = _diagnoses(own, system, run_dir, options, processes, probe)
    except EvoseekError as error:
        diagnoses = [refused("settings", error)]
    if json:
        print(dumps([asdict(diagnosis) for diagnosis in diagnoses], ensure_ascii=False))
    else:
        _show(diagnoses)
    if any(diagnosis.state == "fault" for diagnosis in diagnoses):
        raise typer.Exit(FAULTY)


def _diagnoses(
    own: Project | None,
    system: str | None,
    run_dir: Path | None,
    options: dict[str, str | None],
    processes: int,
    probing: bool | None,
) -> list[Diagnosis]:
    """Return all diagnoses. Raises ConfigError for settings that cannot be read."""
    with end_on_interrupt():
        from evoseek.assembly.sources import gather
        from evoseek.cli.doctor.checks import DoctorContext
        from evoseek.cli.doctor.probe import probe
        from evoseek.cli.settings import chosen_for_model
        from evoseek.models.shape import is_here
        from evoseek.storage.runs import RunDirectory

    given = gather(shared().config, system=system, options=options, sets=shared().sets, project=own)
    if own is not None and own.reviewed.is_file() and not given.states("evaluation.reviewed"):
        given = given.over({"evaluation.reviewed": str(own.reviewed)})
    settings, where = given.read(), run_dir or (own.run if own else None)
    if is_here(settings.policy.model):
        settings = chosen_for_model(settings, console=Console(quiet=True))
    context = DoctorContext(settings, RunDirectory(where) if where else None, processes, own.index if own else None)
    found = list(diagnoses_of(context))
    if probing is None:
        probing = settings.examines_index and settings.sampler.name == "torch"
    is_ready = context.trains and context.has_model and not any(diagnosis.state == "fault" for diagnosis in found)
    if own is not None and own.index is not None and not own.index.exists():
        is_ready = False
    return [*found, *(probe(context) if probing and is_ready else ())]


def diagnoses_of(context: DoctorContext) -> Iterator[Diagnosis]:
    """Yield every diagnosis; if a model of [answerer] answers and none is trained, leave out training. A check that
    raises an unforeseen error is a fault, and the other checks still run."""
    from evoseek.cli.doctor import checks
    from evoseek.cli.doctor.services import check_services

    for check, is_of_training in {
        checks.check_environment: False,
        checks.check_machine: False,
        checks.check_memory: True,
        checks.check_disk: True,
        checks.check_model: True,
        checks.check_indexes: False,
        checks.check_sources: True,
        checks.check_bound: False,
        check_services: False,
        checks.check_directory: True,
        checks.check_plan: True,
    }.items():
        if is_of_training and not context.trains:
            continue
        try:
            yield from check(context)
        except Exception as error:
            remedy = disk_text(error) if is_of_disk(error) else "Report this unforeseen error with the line above."
            yield checks.fault(check.__name__.removeprefix("check_"), f"{type(error).__name__}: {error}", remedy)


def _show(diagnoses: Sequence[Diagnosis]) -> None:
    table = Table("", "state", "diagnosis", box=None, pad_edge=False)
    for diagnosis in diagnoses:
        remedy = f"\n-> {diagnosis.remedy}" if diagnosis.remedy else ""
        state = f"[{_STYLES[diagnosis.state]}]{diagnosis.state}[/]"
        table.add_row(diagnosis.about, state, _plain(diagnosis.words + remedy))
    console = Console()
    console.print(table)
    counts = {state: sum(diagnosis.state == state for diagnosis in diagnoses) for state in _STYLES}
    number = {name: f"{counts[name]} {name}{'' if counts[name] == 1 else 's'}" for name in ("warning", "fault")}
    console.print(f"{counts['ok']} ok, {number['warning']}, {number['fault']}")


def _plain(text: str) -> str:
    """Escape the markup in text from outside."""
    return printable(text).replace("[", r"\[")
