"""Settings of the web: search, its provider and its limits, and which pages are opened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from evoseek.config.sections import Count, Section


class WebSettings(Section):
    """The provider of web search and its limits (DeepResearcher, arXiv 2504.03160)."""

    on_resume = "provider url rate_per_s concurrency budget cache record"
    provider: Literal["", "serper", "serpapi", "brave", "tavily", "searxng", "json", "replay"] = Field(
        default="",
        description="Provider of web search; json is a provider that web.api describes, replay gives the answers that "
        "were recorded in web.record, also those of pages and reader.",
    )
    url: str = Field(default="", description="URL of the provider's API. Default: the provider's own.")
    api: dict[str, Any] = Field(
        default={},
        description="Description of a json provider, or what differs for another one: results, title, link, snippet, "
        "query, ..., options (parameters of every request), key_env (environment variable with the key).",
    )
    max_per_call: int = Field(
        default=3, ge=1, le=100, description="Maximum number of queries, or of pages, in one tool call."
    )
    rate_per_s: float = Field(default=10.0, gt=0, le=1e6, description="Maximum number of requests per second.")
    concurrency: int = Field(default=32, ge=1, le=10_000, description="Maximum number of concurrent requests.")
    budget: Count | None = Field(
        default=None,
        description="Maximum number of requests. A resumed run, and each stage, counts anew. Default: no limit.",
    )
    cache: str = Field(
        default="", description="SQLite file that caches results for seven days. Default: results are not cached."
    )
    record: str = Field(
        default="", description="File that records the answers of web and reader; rollouts then run in lockstep."
    )

    def problems(self) -> Iterator[str]:
        if self.provider == "replay" and not self.record:
            yield "web.provider is replay, but web.record is empty. Set web.record to the file that a run recorded."


class BrowseSettings(Section):
    """Which web pages are opened, and how."""

    on_resume = "timeout_s concurrency interval_s allow deny allow_private"
    only_found: bool = Field(
        default=True, description="Whether only pages that a search of the same rollout found can be opened."
    )
    page_words: Count = Field(
        default=400,
        description="Maximum number of words that are shown of a page: of its beginning, or of the reader's notes.",
    )
    timeout_s: float = Field(
        default=15.0, gt=0, le=86_400, description="Seconds that opening a page may take in total."
    )
    concurrency: int = Field(
        default=64, ge=1, le=10_000, description="Maximum number of pages that are opened concurrently."
    )
    interval_s: float = Field(
        default=1.0,
        ge=0,
        le=3600,
        description="Minimum number of seconds between two requests to a host, of which two run at once; with 0 (a "
        "server of your own) neither is limited.",
    )
    allow: tuple[str, ...] = Field(
        default=(), description="Hosts that may be opened, including their subdomains. Default: every public host."
    )
    deny: tuple[str, ...] = Field(
        default=(),
        description="Hosts that may not be opened, including their subdomains and all hosts at their addresses; takes "
        "precedence over allow.",
    )
    allow_private: tuple[str, ...] = Field(
        default=(),
        description="Private addresses (host:port) on this machine or network that may be opened nevertheless.",
    )
