"""Settings that every search engine has."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SerializeAsAny

from evoseek.settings import Chosen, PartSettings

INDEX_ENGINES = ("auto", "lexical", "dense", "hybrid")
"""The engines that search an index made by `evoseek index`."""


class SearchSettings(PartSettings):
    """The engine that the search tool uses."""

    name: str = Field(
        default="auto",
        description="Name of the engine: auto (the one that the index was built for), lexical, dense, hybrid, or "
        "package.module:Name of your own.",
    )
    index: str = Field(
        default="", description="Directory of an index made by `evoseek index`. In self-play it is also the corpus."
    )
    top_k: int = Field(default=3, ge=1, le=1000, description="Number of passages that a search returns.")
    attempts: int = Field(
        default=4,
        ge=1,
        le=100,
        description="Number of times a failing engine, or the server of a web page, is called before the rollout "
        "becomes Invalid.",
    )
    wait_s: float = Field(
        default=0.5,
        ge=0,
        le=3600,
        description="Seconds before the first retry of a failing call; doubled for each further retry.",
    )


SearchPart = Annotated[SerializeAsAny[SearchSettings], Chosen("search", SearchSettings)]
