"""Settings that every search engine has."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SerializeAsAny

from evoseek.settings import Chosen, PartSettings


class SearchSettings(PartSettings):
    """What the search tool searches."""

    name: str = Field(default="lexical", description="Name of the engine, or package.module:Name of one of your own.")
    index: str = Field(
        default="", description="Directory of an index that `evoseek index` made: the corpus, and what is searched."
    )
    top_k: int = Field(default=3, ge=1, le=1000, description="Number of passages that a search shows.")
    attempts: int = Field(
        default=4, ge=1, le=100, description="Number of times a failing engine is called before the rollout is Invalid."
    )
    wait_s: float = Field(
        default=0.5, ge=0, le=3600, description="Seconds before the second call of a failing engine; doubles each time."
    )


SearchPart = Annotated[SerializeAsAny[SearchSettings], Chosen("search", SearchSettings)]
