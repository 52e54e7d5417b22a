"""Settings of the learner and of the sampler at a service, and what a run may not ask of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from evoseek.config.sections import MANY, Needs, Section, lookup
from evoseek.learner.settings import WEIGHT_DECAY, LearnerSettings
from evoseek.models.settings import LoraSettings, SamplerSettings
from evoseek.models.source import find_policy, is_gguf

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class TinkerSettings(LearnerSettings):
    """The service, and how its model is trained."""

    on_resume = "base_url api_key_env timeout_s"
    is_remote = True
    base_url: str = Field(default="", description="Address of the server. Default: the Tinker service.")
    api_key_env: str = Field(
        default="", description="Environment variable that holds the service's API key. Default: TINKER_API_KEY."
    )
    base_model: str = Field(
        default="",
        description="Name by which the service knows the model that the adapter is put on. Default: policy.model, from "
        "which the tokenizer comes.",
    )
    gradient: Literal["sum", "mean"] = Field(
        default="sum",
        description="Whether the server adds up the gradients of tokens (sum: the Tinker service), or divides the "
        "gradients of a sequence by its weights and their sum by the number of sequences (mean: SkyRL's JAX backend).",
    )
    weight_decay: float = Field(
        default=WEIGHT_DECAY,
        ge=0,
        le=10,
        description="Weight decay of AdamW; 0 where a server trains several adapters and decays all of them.",
    )
    timeout_s: float = Field(
        default=3600.0, gt=0, le=1e6, description="Seconds that a call of training may take before the run stops."
    )

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        """Nothing is computed here."""
        return (Needs("token_budget bf16 gradient_checkpointing", "", instead="The service computes as it chooses."),)

    def problems_with(self, settings: Section) -> Iterator[str]:
        """What the service cannot do, before anything is sent to it."""
        yield from _unsupported(settings)
        if self.api_key_env and not _VARIABLE.fullmatch(self.api_key_env):  # which may be the key: it is not repeated
            yield (
                "learner.api_key_env does not name an environment variable. Expected a name such as TINKER_API_KEY; "
                "the key itself stands in that variable, and in no setting."
            )


class TinkerSamplerSettings(SamplerSettings):
    """Settings of the sampler at the service that trains."""

    probe_every: int = Field(
        default=10,
        ge=0,
        le=MANY,
        description="Number of steps between comparisons of the service's logprobs in sampling and in training on "
        "short samples (sampling/probe_difference), also before the first step; 0: never.",
    )


def _unsupported(settings: Section) -> Iterator[str]:
    """What a run asks for that the service cannot do, with the remedy."""
    service = "learner.name is tinker, and the service "
    if lookup(settings, "sampler.name") == "torch":
        yield (
            f"{service}holds the weights, so they cannot be sampled here (sampler.name is torch). Set sampler.name to "
            "tinker, too."
        )
    if not (lora := lookup(settings, "lora")).rank:
        yield f"{service}trains adapters alone, but lora.rank is 0, which trains all weights. Set it, such as to 32."
    if lora.alpha != LoraSettings.model_fields["alpha"].default:
        yield f"{service}has a scale of its own, so lora.alpha = {lora.alpha} has no effect. Leave it out."
    if lookup(settings, "policy.dtype") != "float32":
        yield f"{service}chooses the type of number, so policy.dtype has no effect. Leave it out."
    if is_gguf(find_policy(model := lookup(settings, "policy.model"))):
        yield (
            f"{service}reads no GGUF file, but policy.model is {model}. Name the model as the service knows it, or a "
            "directory with its tokenizer, and learner.base_model."
        )
    if lookup(settings, "credit.name") == "gae":
        yield f"{service}trains no critic, but credit.name is gae. Set it to group, or to another without one."
    if lookup(settings, "algorithm.entropy_coefficient"):
        yield f"{service}gives no entropies, but algorithm.entropy_coefficient is above 0. Leave it at 0."
    if (value := lookup(settings, "rollout.deadline_s")) is not None:
        yield (
            f"{service}does not report how long a turn was written and how long it waited, so a slow policy cannot be "
            f"told from a busy service, but rollout.deadline_s is {value:g}. Leave it out: "
            "rollout.max_tokens_per_turn and rollout.max_total_tokens limit what the policy writes, and rollout.wait_s "
            "the time of its tools."
        )
    for key in ("rollout.temperature", "proposer.temperature"):
        if (value := lookup(settings, key)) not in (None, 1.0):
            yield f"{service}reports and trains logprobs of temperature 1, but {key} is {value}. Set it to 1."
    for key in ("evaluation.temperature", "dr_zero.writing_temperature"):
        if (value := lookup(settings, key)) not in (None, 0.0, 1.0):
            yield f"{service}samples at temperature 1, or greedily at 0, but {key} is {value}. Set it to one of them."
