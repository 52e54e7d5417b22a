"""Settings of environments and tools."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SerializeAsAny

from evoseek.settings import Chosen, PartSettings


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
