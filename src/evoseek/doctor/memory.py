"""An estimate of the memory that training takes, against what is free.

    weights          parameters x bytes of their type
    training         12 bytes a trained parameter (gradient, AdamW's moments), 16 with the masters of bfloat16 weights
    activations      tokens of a micro-batch x (34 numbers of the hidden size a layer, and 3 logits a word)
    keys and values  slots x the longest rollout x numbers of a token

The two policies of Dr. Zero are counted twice. The estimate is rough: activations depend on the model's own code.
"""

from __future__ import annotations

from collections.abc import Iterator

from evoseek.doctor.finding import Finding, fault, fine, warning
from evoseek.doctor.patient import Patient
from evoseek.policy.shape import ModelShape, read_config
from evoseek.settings import lookup
from evoseek.training.settings import TrainingSettings

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_PER_LAYER, _PER_WORD = 34, 3  # numbers that are kept of a token for the backward pass
_TIGHT = 0.8


def check_memory(patient: Patient) -> Iterator[Finding]:
    """Whether training fits the free memory."""
    settings, shape = patient.settings, patient.shape
    if settings.learner.is_remote or shape is None or not patient.machine.is_here:
        why = "a service trains" if settings.learner.is_remote else "the sizes of the model are not known here"
        why = why if patient.machine.is_here else f"there is no {patient.machine.device} on this machine"
        yield warning("memory", f"No estimate: {why}.", "Watch the memory in the first steps.")
        return
    parts = memory_parts(settings, shape, dict(read_config(settings.policy.model)))
    need, free = sum(parts.values()) * patient.processes, patient.machine.free_bytes
    listed = ", ".join(f"{name} {size / 2**30:.2g}" for name, size in parts.items())
    words = f"about {need / 2**30:.2g} GiB of {free / 2**30:.3g} free ({listed})"
    if need > free:
        yield fault("memory", f"It does not fit: {words}.", _remedy(parts))
    elif need > _TIGHT * free:
        yield warning("memory", f"It is tight: {words}.", _remedy(parts))
    else:
        yield fine("memory", words)


def memory_parts(settings: TrainingSettings, shape: ModelShape, config: dict[str, object]) -> dict[str, float]:
    """Bytes by what they are for."""
    number, trained = _BYTES[settings.policy.dtype], 0 if settings.lora.rank else shape.parameters
    policies = 2 if lookup(settings, "dr_zero") is not None and not settings.lora.rank else 1
    per_token = _PER_WORD * _size(config, "vocab_size") + _PER_LAYER * _size(config, "hidden_size") * _size(
        config, "num_hidden_layers"
    )
    slots = int(lookup(settings, "sampler.slots") or 0)
    return {
        "weights": float(policies * shape.parameters * number),
        "training": float(policies * trained * (12 if number == _BYTES["float32"] else 16)),
        "activations": float(settings.learner.token_budget * per_token * (2 if settings.learner.bf16 else 4)),
        "keys and values": float(policies * slots * settings.rollout.max_total_tokens * shape.kv_numbers * number),
    }


def _size(config: dict[str, object], name: str) -> int:
    value = config.get(name)
    return value if isinstance(value, int) else 0


def _remedy(parts: dict[str, float]) -> str:
    """What to change about the largest part."""
    largest = max(parts, key=lambda name: parts[name])
    return {
        "weights": "Give a smaller model, or set policy.dtype to bfloat16.",
        "training": "Train an adapter (lora.rank=16), or give a smaller model.",
        "activations": "Lower learner.token_budget, or set learner.gradient_checkpointing.",
        "keys and values": "Lower sampler.slots or rollout.max_total_tokens.",
    }[largest]
