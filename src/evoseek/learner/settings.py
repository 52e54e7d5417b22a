"""Settings of the learner and of PPO's critic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field, SerializeAsAny

from evoseek.config.sections import MANY, Chosen, Count, PartSettings, Section

WEIGHT_DECAY, BETAS = 0.01, (0.9, 0.999)  # of AdamW, and the decay rates of its two moments

# Maximum logits in memory (64 MiB, 512 MiB in float32); beyond, they are recomputed in the backward pass. Each chunk
# adds to the whole gradient of the head: on a GPU this dominates if a chunk has few rows.
MAX_LOGITS = {"cpu": 1 << 24, "cuda": 1 << 27}


class LearnerSettings(PartSettings):
    """The optimizer, and how gradients are computed."""

    in_stage = "learning_rate"
    on_resume = "token_budget gradient_checkpointing"  # these change memory only, not results
    is_remote: ClassVar[bool] = False  # whether it computes on another machine
    name: str = Field(default="torch", description="Learner: a built-in name, or package.module:Name.")
    learning_rate: float = Field(default=3e-4, gt=0, le=1, description="Learning rate of AdamW.")
    warmup_steps: int = Field(
        default=0, ge=0, le=MANY, description="Number of steps over which the learning rate rises from 0."
    )
    max_grad_norm: float = Field(default=1.0, gt=0, le=1e6, description="Norm to which the gradient is clipped.")
    token_budget: Count = Field(default=2048, description="Maximum number of tokens of a micro-batch.")
    bf16: bool = Field(
        default=False, description="Whether to compute in bfloat16 (autocast); the weights stay in float32."
    )
    gradient_checkpointing: bool = Field(
        default=False, description="Whether activations are recomputed in the backward pass, to save memory."
    )

    def problems_with(self, settings: Section) -> Iterator[str]:
        """Yield what the settings ask for and this learner cannot do, with the remedy."""
        yield from ()


class CriticSettings(Section):
    """The critic of credit.name = "gae". It is initialised with the policy's weights and a head that predicts 0."""

    learning_rate: float = Field(default=3e-4, gt=0, le=1, description="Learning rate of the critic.")
    warmup_steps: int = Field(
        default=0, ge=0, le=MANY, description="Number of steps over which the critic's learning rate rises from 0."
    )
    critic_warmup_steps: int = Field(
        default=0, ge=0, le=MANY, description="Number of initial steps that train only the critic."
    )


LearnerPart = Annotated[SerializeAsAny[LearnerSettings], Chosen("learner", LearnerSettings)]
