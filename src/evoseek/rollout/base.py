"""Settings of environments and tools, and what they are built from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, SerializeAsAny

from evoseek.config.sections import Chosen, PartSettings

if TYPE_CHECKING:  # settings are read without loading what reads prompts
    from evoseek.protocols import QuestionEngine, SearchEngine, Tool, WebAccess
    from evoseek.rollout.prompts import PromptSet


class EnvironmentSettings(PartSettings):
    """The solver's prompt and tools."""

    name: str = Field(
        default="solver", description="Name of the environment, or package.module:Name of one of your own."
    )


class ToolSettings(PartSettings):
    """A tool of the environment."""

    name: str = Field(default="", description="Name of the tool, or package.module:Name of one of your own.")


EnvironmentPart = Annotated[SerializeAsAny[EnvironmentSettings], Chosen("environment", EnvironmentSettings)]
ToolPart = Annotated[SerializeAsAny[ToolSettings], Chosen("tool", ToolSettings)]


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool is built from: the engine that is searched, the prompt set, and the settings of the whole run.

    `shared(name, make)` returns an object that several tools share, made once; `web()` opens the web of the settings.
    """

    settings: Any
    prompts: PromptSet
    engine: SearchEngine | QuestionEngine | None
    shared: Callable[[str, Callable[[], Any]], Any]
    web: Callable[[], WebAccess]


@dataclass(frozen=True, slots=True)
class EnvironmentContext:
    """What an environment is built from: its tools, the prompt set, the format of the model's prompts, and how many
    calls a rollout has (None: not known)."""

    tools: Sequence[Tool]
    prompts: PromptSet
    format: Literal["tags", "tools"]
    max_calls: int | None = None
