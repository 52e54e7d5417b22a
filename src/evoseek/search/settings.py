"""Settings that every search engine has, and settings of an engine over an index."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, SerializeAsAny

from evoseek.config.sections import Chosen, PartSettings

BuiltEngine = Literal["lexical", "dense", "hybrid"]
"""The engines for which `evoseek index` can build an index; other engines need no entry here."""


class SearchSettings(PartSettings):
    """The engine that the search tool uses."""

    on_resume = "attempts wait_s"
    reads_index: ClassVar[bool] = False
    """Whether the engine searches the index named by `index`, made by `evoseek index`."""
    needs_vectors: ClassVar[bool] = False
    """Whether that index needs vectors."""
    name: str = Field(
        default="auto",
        description="Search engine: a built-in name (`evoseek list search`), auto for the one for which the index "
        "was built, or package.module:Name.",
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


class IndexSettings(SearchSettings):
    """The settings of an engine over an index. The engine is a `LexicalIndex` or derived from it, and is opened from
    its settings alone: `context` may be None."""

    reads_index = True


SearchPart = Annotated[SerializeAsAny[SearchSettings], Chosen("search", SearchSettings)]
