"""Whether the run's directory can be written, and has room for its checkpoints."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from evoseek.doctor.finding import Finding, fault, fine, warning
from evoseek.doctor.patient import Patient
from evoseek.settings import lookup

_OPTIMIZER = 8  # bytes a trained parameter: AdamW's two moments
_LOGS = 100e6  # trajectories and metrics


def check_disk(patient: Patient) -> Iterator[Finding]:
    """Permission and free space, against weights and optimizer of every checkpoint that is kept, and one more."""
    if patient.run is None:
        return
    place = patient.run.path.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK):
        words = f"{patient.run.path} cannot be written: {place} is no folder that this user may write to."
        yield fault("disk", words, "Give another --run-dir, or make the folder writable.")
        return
    free, need = shutil.disk_usage(place).free, _needed(patient)
    words = (
        f"{free / 1e9:.3g} GB free for {patient.run.path}, of which checkpoints and logs take about {need / 1e9:.2g}"
    )
    if need > free:
        yield fault(
            "disk", f"It does not fit: {words}.", "Free space, set run.keep_checkpoints=1, or train an adapter."
        )
    elif 2 * need > free:
        yield warning("disk", f"It is tight: {words}.", "Free space, or set run.keep_checkpoints=1.")
    else:
        yield fine("disk", words)


def _needed(patient: Patient) -> float:
    """Bytes of a run at its largest."""
    settings, shape = patient.settings, patient.shape
    if shape is None:
        return _LOGS
    number = 4 if settings.policy.dtype == "float32" else 2
    parts = 2 if lookup(settings, "dr_zero") is not None else 1
    trained = settings.lora.rank == 0
    each = shape.parameters * (number + _OPTIMIZER) * parts if trained else 0.02 * shape.parameters * number
    return each * (settings.run.keep_checkpoints + 1) + _LOGS
