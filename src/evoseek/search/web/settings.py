"""Settings of web search: the provider and its limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from evoseek.settings import Count, Needs, Section


class WebSettings(Section):
    """The provider of web search and its limits (DeepResearcher, arXiv 2504.03160)."""

    provider: Literal["", "serper", "serpapi", "brave", "tavily", "searxng", "json"] = Field(
        default="", description="Provider of web search; json is a provider that web.api describes."
    )
    url: str = Field(default="", description="URL of the provider's API. Default: the provider's own.")
    api_key_env: str = Field(
        default="", description="Environment variable that holds the provider's key. Default: the usual one."
    )
    options: dict[str, str | int | bool] = Field(
        default={}, description="Parameters that are sent with every request, such as a country."
    )
    api: dict[str, Any] = Field(
        default={}, description="Description of a json provider: results, title, link, snippet, query, ... (JsonApi)."
    )
    max_queries: int = Field(default=3, ge=1, le=100, description="Maximum number of queries in one tool call.")
    rate_per_s: float = Field(default=10.0, gt=0, le=1e6, description="Maximum number of requests per second.")
    concurrency: int = Field(default=32, ge=1, le=10_000, description="Maximum number of concurrent requests.")
    budget: Count | None = Field(default=None, description="Maximum number of requests. Default: no limit.")
    attempts: int = Field(default=4, ge=1, le=100, description="Number of times a failing request is made.")
    timeout_s: float = Field(default=3.5, gt=0, le=86_400, description="Seconds that one attempt may take.")
    deadline_s: float = Field(
        default=120.0,
        gt=0,
        le=86_400,
        description="Seconds that a request may take in total, its wait in the queue included.",
    )
    cache: str = Field(default="", description="SQLite file that caches results. Default: results are not cached.")
    cache_days: float = Field(default=7.0, gt=0, le=10_000, description="Days for which a result is cached.")
    record: str = Field(
        default="", description="File that records the answers of web and reader; rollouts then run in lockstep."
    )
    replay: str = Field(default="", description="File made with web.record whose answers replace web and reader.")

    def problems(self) -> Iterator[str]:
        """A run is either recorded or replayed, and a call must have time for an attempt."""
        if self.record and self.replay:
            yield (
                f"web.record is {self.record} and web.replay is {self.replay}. Record a run, or replay one: leave one "
                "of them empty."
            )
        if self.timeout_s > self.deadline_s:
            yield (
                f"web.timeout_s is {self.timeout_s:g}, the seconds of one attempt, and web.deadline_s is "
                f"{self.deadline_s:g}, those of a tool's whole call: no attempt could last so long. Lower "
                "web.timeout_s, or raise web.deadline_s."
            )

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        """Settings that need another setting to have an effect."""
        return (
            Needs("api", "provider", ("json",)),
            Needs("cache_days", "cache"),
        )
