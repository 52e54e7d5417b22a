"""Settings of web search and its provider, and of opening pages."""

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
        description="Provider of web search; json is described by web.api, replay repeats the answers recorded in "
        "web.record, also of pages and reader.",
    )
    url: str = Field(default="", description="URL of the provider's API. Default: the provider's own.")
    api: dict[str, Any] = Field(
        default={},
        description="Description of a json provider, or changes to another one: results, title, link, snippet, "
        "query, ..., options (parameters of every request), key_env (environment variable with the key).",
    )
    max_per_call: int = Field(
        default=3, ge=1, le=100, description="Maximum number of queries or pages in one tool call."
    )
    rate_per_s: float = Field(default=10.0, gt=0, le=1e6, description="Maximum number of requests per second.")
    concurrency: int = Field(default=32, ge=1, le=10_000, description="Maximum number of concurrent requests.")
    budget: Count | None = Field(
        default=None,
        description="Maximum number of requests, counted separately by each stage and resumed run. Default: no limit.",
    )
    cache: str = Field(
        default="", description="SQLite file that caches results for seven days. Default: results are not cached."
    )
    record: str = Field(
        default="", description="File to record the answers of web and reader; rollouts then run in lockstep."
    )

    def problems(self) -> Iterator[str]:
        if self.provider == "replay" and not self.record:
            yield "web.provider is replay, but web.record is empty. Set web.record to the file that a run recorded."


class BrowseSettings(Section):
    """The opening of web pages."""

    on_resume = "timeout_s concurrency interval_s allow deny allow_private"
    only_found: bool = Field(
        default=True, description="Whether only pages that a search of the same rollout found can be opened."
    )
    page_words: Count = Field(
        default=400,
        description="Maximum number of words shown of a page: its beginning, or the reader's notes.",
    )
    timeout_s: float = Field(default=15.0, gt=0, le=86_400, description="Maximum total seconds for opening a page.")
    concurrency: int = Field(default=64, ge=1, le=10_000, description="Maximum number of pages opened concurrently.")
    interval_s: float = Field(
        default=1.0,
        ge=0,
        le=3600,
        description="Minimum seconds between two requests to a host, with at most two concurrent; 0 removes both "
        "limits (for your own server).",
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
        description="Private addresses (host:port) on this machine or network that may be opened.",
    )
