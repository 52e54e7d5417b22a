"""What would be trained, whether the settings go together, and about how long it takes."""

from __future__ import annotations

from collections.abc import Iterator

from evoseek.doctor.finding import Finding, fault, fine, refused, warning
from evoseek.doctor.patient import Patient
from evoseek.effect import changed, check_effect
from evoseek.errors import EvoseekError
from evoseek.report.metrics import read_metrics
from evoseek.settings import check_settings, defaults_of
from evoseek.training.memory_needs import step_rollouts
from evoseek.training.stages import check_stages


def check_plan(patient: Patient) -> Iterator[Finding]:
    """The settings together, the plan and its time."""
    settings, run = patient.settings, patient.run
    try:
        check_settings(settings)
        if run is None or not run.is_begun:
            check_effect(settings, changed(settings, defaults_of(settings)))
            check_stages(settings)
    except EvoseekError as error:
        yield refused("settings", error)
    trained = f"an adapter of rank {settings.lora.rank}" if settings.lora.rank else "all weights"
    words = f"{settings.run.system}: {trained} of {settings.policy.model}, {settings.planned_steps} steps"
    yield fine("plan", words + (f" of {each} rollouts" if (each := step_rollouts(settings)) else ""))
    yield _time(patient)


def check_run(patient: Patient) -> Iterator[Finding]:
    """Whether the run's directory is a run's, and nobody else's now."""
    run = patient.run
    if run is None:
        return
    try:
        run.check()
        if run.is_begun:
            run.read_config()
    except EvoseekError as error:
        yield refused("run", error)
        return
    if holder := run.holder():
        words = f"{run.path} is in use by the process {holder}."
        yield fault("run", words, "Wait for it to end, stop it, or give another --run-dir.")
    else:
        yield fine("run", f"{run.path}" + (" is resumed" if run.is_begun else " is new"))


def _time(patient: Patient) -> Finding:
    """From the steps that the run has made."""
    try:
        rows = read_metrics(patient.run.timings) if patient.run else []
    except EvoseekError as error:
        return refused("time", error)
    seconds = [row["step/seconds"] or 0.0 for row in rows if row.get("step/seconds") is not None]
    if not seconds:
        words = "Unknown before the first step."
        return warning("time", words, "The probe estimates it; steps measure it.")
    left = max(0, patient.settings.planned_steps - len(seconds))
    each = sum(seconds) / len(seconds)
    return fine(
        "time", f"about {left * each / 60:.0f} min for {left} steps, at {each:.1f} s, the mean of {len(seconds)}"
    )
