"""The device, the cores, and whether more threads compute than there are cores."""

from __future__ import annotations

import os
from collections.abc import Iterator

from evoseek.doctor.finding import Finding, fault, fine, refused, warning
from evoseek.doctor.patient import Patient
from evoseek.errors import PolicyError
from evoseek.policy.load import check_device

_BUSY = 1.5  # waiting processes per core


def check_machine(patient: Patient) -> Iterator[Finding]:
    """Whether the device is there, and enough cores for the processes and their threads."""
    device, cores = patient.settings.policy.device, _cores()
    try:
        check_device(device)
    except PolicyError as error:
        yield refused("device", error)
    else:
        yield fine("device", f"{device}, {patient.machine.free_bytes / 2**30:.1f} GiB free; {cores} cores")
    if patient.machine.is_cpu and patient.processes > cores:
        words = f"{patient.processes} processes would train on {cores} cores, and wait for each other."
        yield fault("cores", words, f"Give --processes {cores} or fewer.")
        return
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and int(threads) * patient.processes > cores:
        words = f"{patient.processes} x {threads} threads (OMP_NUM_THREADS) would share {cores} cores."
        yield warning("threads", words, f"Set OMP_NUM_THREADS to {max(1, cores // patient.processes)}, or unset it.")
    busy = os.getloadavg()[0]
    if busy > _BUSY * cores:
        words = f"{busy:.1f} processes compete for {cores} cores now (load average)."
        yield warning("load", words, "Wait, or end what else computes: times below are too optimistic.")


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
