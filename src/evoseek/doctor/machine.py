"""The device, the cores, and whether more threads compute than there are cores."""

from __future__ import annotations

import os
from collections.abc import Iterator

from evoseek.doctor.finding import Finding, fault, fine, refused, warning
from evoseek.doctor.patient import Patient
from evoseek.errors import PolicyError
from evoseek.policy.load import check_device
from evoseek.policy.machine import cores, too_many

_BUSY = 1.5  # waiting processes per core


def check_machine(patient: Patient) -> Iterator[Finding]:
    """Whether the device is there, and enough cores for the processes and their threads."""
    device, number = patient.settings.policy.device, cores()
    try:
        check_device(device)
    except PolicyError as error:
        yield refused("device", error)
    else:
        yield fine("device", f"{device}, {patient.machine.free_bytes / 2**30:.1f} GiB free; {number} cores")
    if words := too_many(patient.processes, device):
        yield fault("cores", words, f"Give --processes {number} or fewer.")
        return
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and int(threads) * patient.processes > number:
        words = f"{patient.processes} x {threads} threads (OMP_NUM_THREADS) would share {number} cores."
        yield warning("threads", words, f"Set OMP_NUM_THREADS to {max(1, number // patient.processes)}, or unset it.")
    busy = os.getloadavg()[0]
    if busy > _BUSY * number:
        words = f"{busy:.1f} processes compete for {number} cores now (load average)."
        yield warning("load", words, "Wait, or end what else computes: times below are too optimistic.")
