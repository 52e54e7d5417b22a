"""What tools and environments are built from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from evoseek.env.prompts import PromptSet
from evoseek.protocols import QuestionEngine, SearchEngine, Tool

if TYPE_CHECKING:
    from evoseek.env.web import Web


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool is built from: the engine that is searched, the prompt set, and the settings of the whole run.

    `shared(name, make)` returns an object that several tools share, made once; `web()` opens the web of the settings.
    """

    settings: Any
    prompts: PromptSet
    engine: SearchEngine | QuestionEngine | None
    shared: Callable[[str, Callable[[], Any]], Any]
    web: Callable[[], Web]


@dataclass(frozen=True, slots=True)
class EnvironmentContext:
    """What an environment is built from: its tools, the prompt set, the format of the model's prompts, and how many
    calls a rollout has (None: not known)."""

    tools: Sequence[Tool]
    prompts: PromptSet
    format: Literal["tags", "tools"]
    max_calls: int | None = None
