"""The device, its memory, the cores, and whether more threads compute than there are cores."""

from __future__ import annotations

import os
from collections.abc import Iterator

from evoseek.doctor.finding import Finding, fault, fine, refused, warning
from evoseek.doctor.patient import Patient
from evoseek.errors import PolicyError
from evoseek.policy.load import check_device
from evoseek.policy.machine import cores, too_many
from evoseek.training.memory_needs import memory_needs, told

_BUSY = 1.5  # waiting processes per core
_TIGHT = 0.8  # of the free memory
_REMEDIES = {
    "process": "Give fewer --processes, or end what else runs.",
    "learner": "Train an adapter (lora.rank=16), or give a smaller model.",
    "activations": "Lower learner.token_budget, or set learner.gradient_checkpointing.",
    "sampler": "Sample with a server (sampler.name=vllm), or give a smaller model.",
    "reference": "Train an adapter (lora.rank=16), whose base is the reference, or give a smaller model.",
    "keys and values": "Lower sampler.slots or rollout.max_total_tokens.",
}


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


def check_memory(patient: Patient) -> Iterator[Finding]:
    """Whether training fits the free memory."""
    settings, shape, machine = patient.settings, patient.shape, patient.machine
    if settings.learner.is_remote or shape is None or not machine.is_here:
        why = "a service trains" if settings.learner.is_remote else "the sizes of the model are not known here"
        why = why if machine.is_here else f"there is no {machine.device} on this machine"
        yield warning("memory", f"No estimate: {why}.", "Watch the memory in the first steps.")
        return
    needs = memory_needs(settings, shape, patient.processes)
    need = sum(needs.values()) * (patient.processes if machine.is_cpu else 1)
    words, remedy = told(needs, machine), _REMEDIES[max(needs, key=lambda name: needs[name])]
    words += f" (each of {patient.processes} processes)" if patient.processes > 1 else ""
    if need > machine.free_bytes:
        yield fault("memory", f"It does not fit: {words}.", remedy)
    elif need > _TIGHT * machine.free_bytes:
        yield warning("memory", f"It is tight: {words}.", remedy)
    else:
        yield fine("memory", words)
