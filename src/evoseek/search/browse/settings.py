"""Settings of browsing: which pages are opened, and how."""

from __future__ import annotations

from pydantic import Field

from evoseek.settings import Count, Needs, Section


class BrowseSettings(Section):
    """Which pages of the web are opened, and how."""

    max_urls: int = Field(default=3, ge=1, le=100, description="Maximum number of pages of one call of the tool.")
    only_found: bool = Field(
        default=True, description="Whether only pages can be opened that a search of the same rollout found."
    )
    page_words: Count = Field(
        default=400, description="Number of words of a page that are shown where no [reader] reads it."
    )
    timeout_s: float = Field(default=15.0, gt=0, le=86_400, description="Seconds that a page may take in all.")
    concurrency: int = Field(default=64, ge=1, le=10_000, description="Maximum number of pages at once.")
    per_host: int = Field(default=2, ge=1, le=10_000, description="Maximum number of requests to a host at once.")
    interval_s: float = Field(default=1.0, ge=0, le=3600, description="Seconds between two requests to a host.")
    attempts: int = Field(default=3, ge=1, le=100, description="Number of times a failing page is requested.")
    wait_s: float = Field(
        default=0.5,
        ge=0,
        le=3600,
        description="Seconds before the second request of a failing page; doubles each time.",
    )
    obey_robots: bool = Field(default=True, description="Whether a host's robots.txt is obeyed.")
    offline: bool = Field(default=False, description="Whether every page is a failure instead of being opened.")
    proxy: str = Field(default="", description="URL of a proxy; those of the environment are not used.")
    ports: tuple[int, ...] = Field(default=(80, 443), description="Ports that may be connected to.")
    allow: tuple[str, ...] = Field(
        default=(), description="Hosts that may be opened, with all below them. Default: every public one."
    )
    deny: tuple[str, ...] = Field(
        default=(),
        description="Hosts that may not be opened, with all below them and (without a proxy) all at their addresses; "
        "it wins over allow.",
    )
    allow_private: tuple[str, ...] = Field(
        default=(), description="Addresses host:port on this machine or network that may be opened all the same."
    )
    extractors: int = Field(default=2, ge=1, le=256, description="Number of processes that turn pages into text.")

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        """Words of a page are shown where nobody reads it."""
        return (Needs("page_words", "reader.model", (False,)),)
