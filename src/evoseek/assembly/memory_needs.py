"""Estimates of the memory that each process of a run, or of an agent that only answers, needs.

    process          Python with its libraries, where the model computes on the CPU
    learner          weights, gradients and AdamW's moments: 16 bytes a parameter in float32, 18 in bfloat16 (with
                     float32 masters); with an adapter, the adapter's beside the base's weights. Several processes
                     share them
    critic           PPO's: its own weights, gradients and moments, in float32
    weights          of a policy that is not trained
    activations      what `learner.token_budget` tokens leave for the backward pass, and their logits
    sampler          a whole copy of the policy, where the sampler computes in the process and cannot use the learner's
    reference        the frozen copy of a KL penalty; an adapter's base is its own
    keys and values  of the concurrent rollouts, if each reaches `rollout.max_total_tokens`
    prefill          of a policy that is not trained: one layer of the longest pass, with its masks
    freed memory     gaps between blocks, which a process on a CPU keeps (models.machine.keep_freed_memory)

A cold start with demonstrations trains all weights before the run trains: the phase with the larger sum counts.
notes/measured.md has estimates beside measured peaks (`bench/memory.py`).

While a process loads a model, it briefly holds all of its weights. If several processes share the weights, each reads
only its rows, unless an adapter is trained or the model comes from a GGUF file (learner.sharding).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Literal, NamedTuple

from evoseek.assembly.settings import TrainingSettings
from evoseek.config.registry import find
from evoseek.config.sections import lookup, with_setting
from evoseek.credit import needs_critic
from evoseek.learner.settings import MAX_LOGITS, LearnerSettings
from evoseek.models.machine import Machine, find_machine
from evoseek.models.settings import CPU_PREFILL_TOKENS, GPU_PREFILL_TOKENS, EngineSettings
from evoseek.models.shape import ModelShape, local_config, shape_of

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_PROCESS = 450 << 20  # measured: torch, transformers and other imports of a run
_SERVER = 40 << 20  # measured: further imports of a server
_PER_LOGIT = 12  # bytes: the logits, their logprobs and their gradient
_RECOMPUTED = 12  # with gradient checkpointing one activation in 12 is kept
_ADAPTED = 1.4  # times the activations without an adapter: measured
_TRAINED = 16  # bytes of a trained parameter in float32: weight, gradient and two moments
_PER_PAIR = 17  # bytes of the masks of a query and a key: 1 as a condition, 4 as a number, 4 for each of 3 heads
_TIGHT = 0.8  # of the free memory
_REMEDIES = {
    "process": "Give fewer --processes, or end other programs.",
    "learner": "Train an adapter (lora.rank=16), or give a smaller model.",
    "critic": "Use a credit without a critic (credit.name=group), or give a smaller model.",
    "activations": "Lower learner.token_budget, or set learner.gradient_checkpointing.",
    "sampler": "Sample with a server (sampler.name=vllm), or give a smaller model.",
    "reference": "Train an adapter (lora.rank=16), whose base is the reference, or give a smaller model.",
    "keys and values": "Lower sampler.slots or rollout.max_total_tokens.",
}
_SMALLER = "Give a smaller model."
_MOMENTS = 8  # bytes of AdamW's moments for each trained parameter
_LOGS = 100_000_000  # bytes of trajectories and metrics
_FREED = 0.25  # of the memory that comes and goes: measured, up to 0.3 after a few steps


def memory_needs(
    settings: TrainingSettings, shape: ModelShape, processes: int = 1, *, answers: int = 0
) -> Mapping[str, int]:
    """Return the bytes that each process needs, by purpose. With `answers` the policy is not trained, but answers that
    many questions concurrently."""
    if answers:
        return _answering_needs(settings, shape, answers)
    needs = training_needs(settings, shape, processes)
    if not settings.demonstrates or settings.learner.is_remote:
        return needs
    return max(needs, _cold_start_needs(settings, shape), key=lambda phase: sum(phase.values()))


def training_needs(settings: TrainingSettings, shape: ModelShape, processes: int = 1) -> Mapping[str, int]:
    """Return the bytes needed while the run trains, after its cold start."""
    number, rank = _BYTES[settings.policy.dtype], settings.adapter_rank
    adapted = rank > 0
    whole = shape.parameters * number
    served = isinstance(settings.sampler, EngineSettings)
    players = 1 if adapted else settings.policies
    adapter = rank * shape.adapted * _TRAINED
    each = whole + adapter if adapted else _all_weights(settings, shape)
    copies = int(not served and (processes > 1 or settings.max_staleness > 0))
    rollouts = math.ceil(_max_rollouts(settings) / processes)
    referred = settings.algorithm.kl_coefficient > 0 and not adapted
    needs = {
        "learner": players * each // processes,
        "critic": shape.parameters * _TRAINED * needs_critic(find("credit", settings.credit.name)) // processes,
        "activations": _activations(settings, shape),
        "sampler": players * whole * copies,
        "reference": whole * referred,
        "keys and values": players * _held(settings, rollouts) * rollout_bytes(settings, shape),
    }
    return _in_process(settings, needs)


def _cold_start_needs(settings: TrainingSettings, shape: ModelShape) -> Mapping[str, int]:
    warm = with_setting(settings, "lora.rank", 0)
    warm = with_setting(warm, "learner.token_budget", LearnerSettings().token_budget)
    needs = {"learner": _all_weights(warm, shape), "activations": _activations(warm, shape)}
    return _in_process(warm, needs)


def _answering_needs(settings: TrainingSettings, shape: ModelShape, answers: int) -> Mapping[str, int]:
    number, on_cpu = _BYTES[settings.policy.dtype], settings.policy.device == "cpu"
    held = _held(settings, answers)
    longest = settings.rollout.max_total_tokens
    computed = min(CPU_PREFILL_TOKENS if on_cpu else GPU_PREFILL_TOKENS, held * longest)
    needs = {
        "weights": shape.parameters * number,
        "keys and values": held * rollout_bytes(settings, shape),
        "prefill": computed * (shape.activations // shape.layers * number + longest * _PER_PAIR),
    }
    return _in_process(settings, needs, _SERVER)


def _in_process(settings: TrainingSettings, needs: Mapping[str, int], server: int = 0) -> Mapping[str, int]:
    """Add a process's own memory and the gaps to its needs, and leave out zeros."""
    on_cpu = settings.policy.device == "cpu"
    changing = sum(needs.get(name, 0) for name in ("activations", "keys and values"))
    whole = {"process": (_PROCESS + server) * on_cpu, **needs, "freed memory": int(_FREED * changing) * on_cpu}
    return {name: size for name, size in whole.items() if size}


def _all_weights(settings: TrainingSettings, shape: ModelShape) -> int:
    masters = 0 if settings.policy.dtype == "float32" else 2
    return shape.parameters * (_TRAINED + masters)


def _held(settings: TrainingSettings, most: int) -> int:
    """Return the number of rollouts whose keys and values this process holds concurrently."""
    served = isinstance(settings.sampler, EngineSettings)
    return 0 if served else min(lookup(settings, "sampler.slots") or 0, most)


def rollout_bytes(settings: TrainingSettings, shape: ModelShape) -> int:
    """Return the bytes of keys and values of one rollout of maximum length."""
    return settings.rollout.max_total_tokens * shape.kv_numbers * _BYTES[settings.policy.dtype]


def step_rollouts(settings: TrainingSettings) -> int:
    """Return the number of rollouts in a step that trains the solver; 0 if unknown."""
    asked = lookup(settings, "questions.per_step") or lookup(settings, "selfplay.proposals_per_step") or 0
    return int(asked * (lookup(settings, "rollout.group_size") or lookup(settings, "proposer.attempts") or 1))


def describe_needs(needs: Mapping[str, int], machine: Machine) -> str:
    """Describe the needs of a process in GiB, with the free memory."""
    parts = " + ".join(f"{name} {size / 2**30:.2f}" for name, size in needs.items())
    free = f" of {machine.free_bytes / 2**30:.1f} GiB that are free" if machine.is_here else " GiB"
    return f"about {sum(needs.values()) / 2**30:.2f}{free}: {parts}"


def disk_needs(settings: TrainingSettings) -> float:
    """Return the largest size of a run's directory in bytes: the kept checkpoints and one more, and the logs."""
    shape = shape_of(local_config(settings.policy.model))
    if shape is None:
        return _LOGS
    number, adapted = 4 if settings.policy.dtype == "float32" else 2, settings.adapter_rank > 0
    each = 0.02 * shape.parameters * number if adapted else shape.parameters * (number + _MOMENTS) * settings.policies
    return each * (settings.run.keep_checkpoints + 1) + _LOGS


class Fit(NamedTuple):
    """Whether a run fits the free memory, in words, and a remedy if it does not or hardly does."""

    state: Literal["ok", "tight", "over", "unknown"]
    words: str
    remedy: str = ""


def fit(settings: TrainingSettings, processes: int = 1, *, answers: int = 0) -> Fit:
    """Return whether training in `processes` processes, or answering `answers` questions concurrently, fits this
    machine."""
    shape, machine = shape_of(local_config(settings.policy.model)), find_machine(settings.policy.device)
    if (is_elsewhere := settings.learner.is_remote and not answers) or shape is None:
        unknown = f"the sizes of {settings.policy.model} are not known here, without a config.json that has them"
        why = "a service trains" if is_elsewhere else unknown
        return Fit("unknown", f"No estimate: {why}.", "Watch the memory in the first steps.")
    needs = memory_needs(settings, shape, processes, answers=answers)
    words = describe_needs(needs, machine) + (f" (each of {processes} processes)" if processes > 1 else "")
    if not machine.is_here:
        words = f"{words}; there is no {machine.device} on this machine"
        return Fit("unknown", words, "Compare it with that device's.")
    need = sum(needs.values()) * (processes if machine.is_cpu else 1)
    remedy = _REMEDIES.get(max(needs, key=lambda name: needs[name]), _SMALLER)
    if need > machine.free_bytes:
        return Fit("over", f"It does not fit: {words}.", remedy)
    return Fit("tight", f"It is tight: {words}.", remedy) if need > _TIGHT * machine.free_bytes else Fit("ok", words)


def _max_rollouts(settings: TrainingSettings) -> int:
    """Return the most rollouts that run concurrently: of a step and of the steps ahead, or of an
    evaluation."""
    evaluation = settings.evaluation
    evaluated = (evaluation.limit or sys.maxsize) if evaluation.path else 0
    return max(evaluated, step_rollouts(settings) * (1 + settings.max_staleness))


def _activations(settings: TrainingSettings, shape: ModelShape) -> int:
    learner = settings.learner
    if learner.is_remote:
        return 0
    kept = shape.activations * (_ADAPTED if settings.adapter_rank else 1)
    if lookup(settings, "learner.gradient_checkpointing"):
        kept /= _RECOMPUTED
    most = MAX_LOGITS.get(settings.policy.device.partition(":")[0], MAX_LOGITS["cpu"])
    logits = min(most, learner.token_budget * shape.vocabulary)
    number = 2 if learner.bf16 else _BYTES[settings.policy.dtype]
    return int(learner.token_budget * kept * number) + logits * _PER_LOGIT
