"""What a run needs in memory in each of its processes, as far as the sizes of the model tell: activations come on top.

    learner      weights, gradients and AdamW's moments: 16 bytes a parameter in float32, 18 in bfloat16 (with float32
                 masters); of an adapter the base alone. Several processes share them.
    sampler      a whole copy of the policy, where the sampler computes in the process and cannot use the learner's
    reference    the frozen copy of a KL penalty; an adapter's base is its own
    rollouts     keys and values of `sampler.slots` rollouts of the greatest length, at the most

While it loads a model, a process holds all of its weights for a moment; of several that share the weights each reads
its rows alone, unless an adapter is trained or the model comes from a GGUF file (policy.unread).
"""

from __future__ import annotations

from collections.abc import Mapping

from evoseek.policy.engines.settings import ServerSettings
from evoseek.policy.shape import ModelShape
from evoseek.settings import lookup
from evoseek.training.settings import TrainingSettings

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def memory_needs(settings: TrainingSettings, shape: ModelShape, processes: int) -> Mapping[str, int]:
    """Bytes in each process by what needs them; only what is needed."""
    number, adapted = _BYTES[settings.policy.dtype], settings.lora.rank > 0
    whole = shape.parameters * number
    served = isinstance(settings.sampler, ServerSettings)
    two = settings.run.system == "dr-zero" and not lookup(settings, "dr_zero.one_policy")
    players = 2 if two and not adapted else 1
    each = whole if adapted else shape.parameters * (16 if number == 4 else 18)
    copies = int(not served and (processes > 1 or settings.max_staleness > 0))
    if lookup(settings, "sampler.transfer") == "nccl":
        copies = 2  # the new one, and the one before, while a server still takes it
    referred = settings.algorithm.kl_coefficient > 0 and not adapted
    rollouts = (lookup(settings, "sampler.slots") or 0) * settings.rollout.max_total_tokens * shape.kv_numbers * number
    needs = {
        "learner": players * each // processes,
        "sampler": players * whole * copies,
        "reference": whole * referred,
        "rollouts": 0 if served else players * rollouts,
    }
    return {name: size for name, size in needs.items() if size}


def told(needs: Mapping[str, int]) -> str:
    """In words, in GiB."""
    parts = " + ".join(f"{name} {size / 2**30:.2f}" for name, size in needs.items())
    return f"{sum(needs.values()) / 2**30:.2f} GiB in each process, activations apart: {parts}"
