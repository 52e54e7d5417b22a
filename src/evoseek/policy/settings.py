"""Settings of the policy: the model, its adapter, and the sampler."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SerializeAsAny

from evoseek.settings import MANY, Chosen, Needs, PartSettings, Section

Dtype = Literal["float32", "bfloat16", "float16"]


class PolicySettings(Section):
    """The policy's model."""

    model: str = Field(
        default="tiny",
        description="Model: the name of a policy in the package (such as `tiny`), `smollm2-135m`, a directory (also of "
        "a run), a GGUF file, or a Hugging Face name.",
    )
    format: Literal["auto", "tags", "tools"] = Field(
        default="auto",
        description="Format of tool calls: tags, or the chat template's tools; auto uses tools if the "
        "template supports them.",
    )
    prompts: str = Field(
        default="auto",
        description="Prompt set: default, short (a few lines for small models), a directory of your own, or auto for "
        "the set that the model's config names.",
    )
    device: str = Field(default="cpu", description="Device of the model, as torch names it.")
    dtype: Dtype = Field(
        default="float32",
        description="Data type of the weights; all of them can be trained in float32, or in bfloat16 with float32 "
        "masters.",
    )


class LoraSettings(Section):
    """Training a low-rank adapter instead of all weights."""

    rank: int = Field(default=0, ge=0, le=4096, description="Rank of the adapter; 0 trains all weights.")
    alpha: float = Field(default=32.0, gt=0, le=1e6, description="Scale of the adapter: its output times alpha / rank.")

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        """Settings of the adapter need an adapter."""
        return (Needs("alpha", "rank"),)


class SamplerSettings(PartSettings):
    """How completions are sampled."""

    name: str = Field(default="torch", description="Name of the sampler, or package.module:Name of one of your own.")
    probe_every: int = Field(
        default=0,
        ge=0,
        le=MANY,
        description="Number of steps between comparisons of the sampler's and the learner's logprobs on short "
        "samples (sampling/probe_difference), also before the first step; 0: never.",
    )


class TorchSamplerSettings(SamplerSettings):
    """Settings of the embedded sampler."""

    slots: int = Field(
        default=160, ge=1, le=10_000, description="Number of rollouts whose keys and values are held at once."
    )


SamplerPart = Annotated[SerializeAsAny[SamplerSettings], Chosen("sampler", SamplerSettings)]
