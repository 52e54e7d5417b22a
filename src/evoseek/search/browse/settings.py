"""Settings of browsing."""

from __future__ import annotations

from pydantic import Field

from evoseek.settings import Count, Needs, Section


class BrowseSettings(Section):
    """Which web pages are opened, and how."""

    max_urls: int = Field(default=3, ge=1, le=100, description="Maximum number of pages in one tool call.")
    only_found: bool = Field(
        default=True, description="Whether only pages that a search of the same rollout found can be opened."
    )
    page_words: Count = Field(
        default=400, description="Number of words at the beginning of a page that are shown if there is no [reader]."
    )
    timeout_s: float = Field(
        default=15.0, gt=0, le=86_400, description="Seconds that opening a page may take in total."
    )
    concurrency: int = Field(
        default=64, ge=1, le=10_000, description="Maximum number of pages that are opened concurrently."
    )
    per_host: int = Field(default=2, ge=1, le=10_000, description="Maximum number of concurrent requests to a host.")
    interval_s: float = Field(
        default=1.0, ge=0, le=3600, description="Minimum number of seconds between two requests to a host."
    )
    attempts: int = Field(default=3, ge=1, le=100, description="Number of times a failing page is requested.")
    wait_s: float = Field(
        default=0.5,
        ge=0,
        le=3600,
        description="Seconds before the second request of a failing page; doubles each time.",
    )
    obey_robots: bool = Field(default=True, description="Whether a host's robots.txt is obeyed.")
    proxy: str = Field(
        default="", description="URL of a proxy. Default: no proxy; proxies of the environment are not used."
    )
    ports: tuple[int, ...] = Field(default=(80, 443), description="Ports to which connections are allowed.")
    allow: tuple[str, ...] = Field(
        default=(), description="Hosts that may be opened, including their subdomains. Default: every public host."
    )
    deny: tuple[str, ...] = Field(
        default=(),
        description="Hosts that may not be opened, including their subdomains and (without a proxy) all hosts at "
        "their addresses; takes precedence over allow.",
    )
    allow_private: tuple[str, ...] = Field(
        default=(),
        description="Private addresses (host:port) on this machine or network that may be opened nevertheless.",
    )

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        """The words of a page are shown only if there is no reader."""
        return (Needs("page_words", "reader.model", (False,)),)
