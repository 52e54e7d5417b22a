"""Settings that every credit function has."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, SerializeAsAny

from evoseek.settings import Chosen, PartSettings


class CreditSettings(PartSettings):
    """From rewards to advantages."""

    staged: ClassVar[tuple[str, ...]] = ("*",)
    name: str = Field(default="group", description="Name of the credit, or package.module:Name of one of your own.")


CreditPart = Annotated[SerializeAsAny[CreditSettings], Chosen("credit", CreditSettings)]
