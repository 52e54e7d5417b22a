"""Settings of the learner, and of the critic that PPO trains beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field, SerializeAsAny

from evoseek.settings import MANY, Chosen, Count, Decay, PartSettings, Section


class LearnerSettings(PartSettings):
    """The optimizer, and how gradients are computed."""

    staged: ClassVar[tuple[str, ...]] = ("learning_rate",)
    is_remote: ClassVar[bool] = False  # whether another machine computes
    name: str = Field(default="torch", description="Name of the learner, or package.module:Name of one of your own.")
    learning_rate: float = Field(default=3e-4, gt=0, le=1, description="Learning rate of AdamW.")
    warmup_steps: int = Field(
        default=0, ge=0, le=MANY, description="Number of steps over which the learning rate rises from 0."
    )
    weight_decay: float = Field(default=0.01, ge=0, le=10, description="Weight decay of AdamW.")
    betas: tuple[Decay, Decay] = Field(default=(0.9, 0.999), description="Decay rates of AdamW's two moments.")
    max_grad_norm: float = Field(
        default=1.0, gt=0, le=1e6, description="Maximum norm of the gradient, to which it is clipped."
    )
    token_budget: Count = Field(default=2048, description="Maximum number of tokens of a micro-batch.")
    bf16: bool = Field(
        default=False, description="Whether to compute in bfloat16 (autocast); the weights stay in float32."
    )
    gradient_checkpointing: bool = Field(
        default=False, description="Whether activations are recomputed in the backward pass, to save memory."
    )

    def problems_with(self, settings: Section) -> Iterator[str]:
        """What this learner cannot do of all that the settings ask for, with the remedy."""
        yield from ()


class CriticSettings(Section):
    """The critic of credit.name = "gae". It is initialised with the policy's weights and a head that predicts 0."""

    learning_rate: float = Field(default=3e-4, gt=0, le=1, description="Learning rate of the critic.")
    warmup_steps: int = Field(
        default=0, ge=0, le=MANY, description="Number of steps over which the critic's learning rate rises from 0."
    )
    clip: float = Field(
        default=0.2,
        gt=0,
        le=1e6,
        description="Change of a predicted value, in either direction, beyond which its loss is clipped.",
    )
    critic_warmup_steps: int = Field(
        default=0, ge=0, le=MANY, description="Number of steps at the beginning in which only the critic is trained."
    )


LearnerPart = Annotated[SerializeAsAny[LearnerSettings], Chosen("learner", LearnerSettings)]
