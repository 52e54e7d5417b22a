"""Settings of rollouts: their number and their limits."""

from __future__ import annotations

from pydantic import Field

from evoseek.settings import MANY, Count, Section, Temperature


class RolloutSettings(Section):
    """How a policy is rolled out, and the limits of a rollout."""

    in_stage = "temperature group_size"
    temperature: Temperature = Field(default=1.0, description="Sampling temperature of rollouts in training.")
    max_turns: int = Field(default=5, ge=1, le=10_000, description="Maximum number of completions of a rollout.")
    max_tool_calls: int = Field(default=5, ge=0, le=10_000, description="Maximum number of tool calls of a rollout.")
    max_malformed: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="Number of turns with neither a call nor an answer after which the model gets a notice and "
        "continues.",
    )
    final_answer: bool = Field(
        default=False,
        description="Whether the model gets one more turn to answer, if max_turns leaves it, after too many calls or "
        "(if max_malformed is above 0) too many malformed turns.",
    )
    max_tokens_per_turn: Count = Field(default=96, description="Maximum number of tokens of a completion.")
    max_total_tokens: int = Field(
        default=1600, ge=2, le=MANY, description="Maximum number of tokens of a rollout, with prompt and observations."
    )
    deadline_s: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Seconds that the sampler may work on a rollout's own tokens; one that takes longer is cut off "
        "and scored. Waiting is not counted. Default: no limit.",
    )
    wait_s: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Seconds that a rollout may wait in all for a slot of the embedded sampler, for tools and for "
        "engines; one that waits longer is Invalid. Default: the value of rollout.deadline_s.",
    )


class GroupRolloutSettings(RolloutSettings):
    """Settings of rollouts for systems that roll every question out several times."""

    group_size: int = Field(default=8, ge=2, le=10_000, description="Number of rollouts of a question.")


class QuestionRolloutSettings(GroupRolloutSettings):
    """Settings of rollouts for systems that are given their questions."""

    max_staleness: int = Field(
        default=0,
        ge=0,
        le=100,
        description="Number of later steps whose rollouts go on while a step trains, and so of the steps by which the "
        "weights that wrote a token may be older than those that learn from it; 0: sampling and training alternate.",
    )
