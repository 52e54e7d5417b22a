"""Estimates the memory that a run, or an agent that only answers, needs in each of its processes.

    process          Python with its libraries, where the model computes on the CPU
    learner          weights, gradients and AdamW's moments: 16 bytes a parameter in float32, 18 in bfloat16 (with
                     float32 masters); of an adapter the base alone. Several processes share them
    weights          of a policy that is not trained
    activations      what `learner.token_budget` tokens leave for the backward pass, and their logits
    sampler          a whole copy of the policy, where the sampler computes in the process and cannot use the learner's
    reference        the frozen copy of a KL penalty; an adapter's base is its own
    keys and values  of the rollouts that are held at once, if each reaches `rollout.max_total_tokens`

docs/measured.md has estimates beside measured peaks (`bench/memory.py`).

While it loads a model, a process holds all of its weights for a moment; of several that share the weights each reads
its rows alone, unless an adapter is trained or the model comes from a GGUF file (policy.deferred_weights).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from evoseek.learner.settings import MAX_LOGITS
from evoseek.policy.machine import Machine
from evoseek.policy.settings import EngineSettings
from evoseek.policy.shape import ModelShape
from evoseek.settings import lookup
from evoseek.training.settings import TrainingSettings

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_PROCESS = 450 << 20  # measured: torch, transformers and what else a run imports
_PER_LOGIT = 12  # bytes: the logits, their logprobs and their gradient
_RECOMPUTED = 12  # with gradient checkpointing an activation in so many is kept
_ADAPTED = 1.4  # times the activations without an adapter: measured


def memory_needs(
    settings: TrainingSettings, shape: ModelShape, processes: int = 1, *, answers: int = 0
) -> Mapping[str, int]:
    """Bytes in each process by what needs them; only what is needed. With `answers` the policy is not trained, but
    answers so many questions at once."""
    number, adapted = _BYTES[settings.policy.dtype], settings.lora.rank > 0
    whole = shape.parameters * number
    served = isinstance(settings.sampler, EngineSettings)
    held = 0 if served else min(lookup(settings, "sampler.slots") or 0, answers or _max_rollouts(settings))
    own = {"process": _PROCESS * (settings.policy.device == "cpu")}
    rollouts = held * rollout_bytes(settings, shape)
    if answers:
        return {name: size for name, size in {**own, "weights": whole, "keys and values": rollouts}.items() if size}
    two = settings.run.system == "dr-zero" and not lookup(settings, "dr_zero.one_policy")
    players = 2 if two and not adapted else 1
    each = whole if adapted else shape.parameters * (16 if number == 4 else 18)
    copies = int(not served and (processes > 1 or settings.max_staleness > 0))
    referred = settings.algorithm.kl_coefficient > 0 and not adapted
    needs = {
        **own,
        "learner": players * each // processes,
        "activations": _activations(settings, shape),
        "sampler": players * whole * copies,
        "reference": whole * referred,
        "keys and values": players * rollouts,
    }
    return {name: size for name, size in needs.items() if size}


def rollout_bytes(settings: TrainingSettings, shape: ModelShape) -> int:
    """Bytes of the keys and values of one rollout of the greatest length."""
    return settings.rollout.max_total_tokens * shape.kv_numbers * _BYTES[settings.policy.dtype]


def step_rollouts(settings: TrainingSettings) -> int:
    """Number of rollouts of a step that trains the solver; 0 if the settings do not say."""
    asked = lookup(settings, "questions.per_step") or lookup(settings, "selfplay.proposals_per_step") or 0
    return int(asked * (lookup(settings, "rollout.group_size") or lookup(settings, "proposer.attempts") or 1))


def describe_needs(needs: Mapping[str, int], machine: Machine) -> str:
    """What a process needs, in words, in GiB, with the memory that is free."""
    parts = " + ".join(f"{name} {size / 2**30:.2f}" for name, size in needs.items())
    free = f" of {machine.free_bytes / 2**30:.1f} GiB that are free" if machine.is_here else " GiB"
    return f"about {sum(needs.values()) / 2**30:.2f}{free}: {parts}"


def _max_rollouts(settings: TrainingSettings) -> int:
    """The most rollouts that training begins together: of a step and those that it may be behind, or of an
    evaluation."""
    evaluation = settings.evaluation
    evaluated = (evaluation.limit or sys.maxsize) if evaluation.path else 0
    return max(evaluated, step_rollouts(settings) * (1 + settings.max_staleness))


def _activations(settings: TrainingSettings, shape: ModelShape) -> int:
    learner = settings.learner
    if learner.is_remote:
        return 0
    kept = shape.activations * (_ADAPTED if settings.lora.rank else 1)
    if lookup(settings, "learner.gradient_checkpointing"):
        kept /= _RECOMPUTED
    most = MAX_LOGITS.get(settings.policy.device.partition(":")[0], MAX_LOGITS["cpu"])
    logits = min(most, learner.token_budget * shape.vocabulary)
    return int(learner.token_budget * kept * (2 if learner.bf16 else 4)) + logits * _PER_LOGIT
