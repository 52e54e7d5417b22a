"""Settings of rollouts, environments and tools, and the contexts that build environments and tools."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializeAsAny

from evoseek.config.sections import MANY, Chosen, Count, Needs, PartSettings, Section, Temperature

if TYPE_CHECKING:  # settings are read without loading what reads prompts
    from evoseek.protocols import QuestionEngine, SearchEngine, Tool, WebAccess
    from evoseek.rollout.prompts import PromptSet


class RolloutSettings(Section):
    """How a policy is rolled out, and the limits of a rollout."""

    in_stage = "temperature group_size"
    on_resume = "wait_s"
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
        description="Whether the model gets one last turn to answer, within max_turns, after too many calls or (if "
        "max_malformed is above 0) too many malformed turns.",
    )
    max_tokens_per_turn: Count = Field(default=96, description="Maximum number of tokens of a completion.")
    max_total_tokens: int = Field(
        default=1600,
        ge=2,
        le=MANY,
        description="Maximum number of tokens of a rollout, with prompt and observations; in the environment notes, of "
        "its context.",
    )
    deadline_s: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Maximum seconds that the sampler works on a rollout's own tokens; a longer rollout is cut off and "
        "scored. Waiting is not counted. Default: no limit.",
    )
    wait_s: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Maximum total seconds that a rollout waits for a slot of the embedded sampler, tools and engines; "
        "a rollout that waits longer is Invalid. Default: rollout.deadline_s.",
    )


class GroupRolloutSettings(RolloutSettings):
    """Settings of rollouts for systems that roll every question out several times."""

    in_stage = f"{RolloutSettings.in_stage} put_off"
    group_size: int = Field(default=8, ge=2, le=10_000, description="Number of rollouts of a question.")
    put_off: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of a question's training rollouts in which a search replaces the first answer, or, in the "
        "environment search_first without tool calls, the question's own answer (an abstention, if no passage in the "
        "prompt has it). So the policy learns from what it hardly ever chooses. Needs the embedded sampler; a search "
        "also needs the format tags.",
    )

    def problems(self) -> Iterator[str]:
        """Yield a problem if the share is less than one rollout, or all of them."""
        if self.put_off and not 0 < self.answers_put_off < self.group_size:
            yield (
                f"rollout.put_off is {self.put_off}, which is {self.answers_put_off} of the {self.group_size} rollouts "
                "of a question (rollout.group_size). Set rollout.put_off to at least one rollout, but not all."
            )

    @property
    def answers_put_off(self) -> int:
        """The number of a question's rollouts whose first answer is put off."""
        return round(self.put_off * self.group_size)


class QuestionRolloutSettings(GroupRolloutSettings):
    """Settings of rollouts for systems that are given their questions."""

    max_staleness: int = Field(
        default=0,
        ge=0,
        le=100,
        description="Number of steps that sampling may run ahead of training; the weights that wrote a token may then "
        "be that many steps older. 0: sampling and training alternate.",
    )


class EnvironmentSettings(PartSettings):
    """The solver's prompt and tools."""

    opens: ClassVar[bool] = False  # whether it calls tools before the first turn (`OpeningEnvironment`)

    name: str = Field(default="solver", description="Environment: a built-in name, or package.module:Name.")


class ToolSettings(PartSettings):
    """A tool of the environment."""

    name: str = Field(default="", description="Tool: a built-in name, or package.module:Name.")


class AgentSettings(PartSettings):
    """Who calls the policy, and what for."""

    name: str = Field(
        default="loop",
        description="Agent: loop (the package's own, with the environment and the tools), command (a program), or "
        "package.module:Name of a function of the question and a client.",
    )
    concurrent: Count = Field(default=16, description="Maximum number of attempts of an agent that run concurrently.")
    trained: Literal["all", "last"] = Field(
        default="all",
        description="Calls of an attempt that are trained on: all, or the last one with those that it continues.",
    )

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        return (Needs("concurrent trained", "name", ("command",)),)


class CommandSettings(AgentSettings):
    """A program that answers one question and ends."""

    program: str = Field(default="", description="Command line of the agent's program, such as `python agent.py`.")

    def problems(self) -> Iterator[str]:
        """Yield a problem if the command line is empty or a quote is not closed."""
        try:
            fault = "" if shlex.split(self.program) else "is empty"
        except ValueError as error:
            fault = f"is {self.program!r}, which cannot be split ({error})"
        if fault:
            yield f"agent.program {fault}. Give the agent's command line, such as `python agent.py`."


AgentPart = Annotated[SerializeAsAny[AgentSettings], Chosen("agent", AgentSettings)]
EnvironmentPart = Annotated[SerializeAsAny[EnvironmentSettings], Chosen("environment", EnvironmentSettings)]
ToolPart = Annotated[SerializeAsAny[ToolSettings], Chosen("tool", ToolSettings)]


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The context to build a tool from: the engine, the prompt set, and the settings of the whole run.

    `shared(name, make)` returns an object that several tools share, made once; `web()` opens the web of the settings.
    """

    settings: Any
    prompts: PromptSet
    engine: SearchEngine | QuestionEngine | None
    shared: Callable[[str, Callable[[], Any]], Any]
    web: Callable[[], WebAccess]


@dataclass(frozen=True, slots=True)
class EnvironmentContext:
    """The context to build an environment from: its tools, the prompt set, the format of prompts, and a rollout's
    number of calls (None: unknown)."""

    tools: Sequence[Tool]
    prompts: PromptSet
    format: Literal["tags", "tools"]
    max_calls: int | None = None
