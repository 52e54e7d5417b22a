"""The search provider and the fetcher from their settings."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from evoseek.errors import ConfigError
from evoseek.http.server import check_url
from evoseek.protocols import Fetcher, SearchEngine
from evoseek.search.browse.address import AddressRules
from evoseek.search.browse.extract import Extractor
from evoseek.search.browse.fetch import SafeFetcher
from evoseek.search.browse.settings import BrowseSettings
from evoseek.search.web.cache import Cache
from evoseek.search.web.http import CallLimits
from evoseek.search.web.providers import PROVIDERS, JsonApi, make_provider
from evoseek.search.web.settings import WebSettings
from evoseek.search.web.store import StoredWeb

DAY_S = 24 * 3600.0
WAITING = 4096  # calls in the queue, at most


Closing = Callable[[Callable[[], None]], object]
"""Registers a function to be called at the end."""


def web_calls(web: WebSettings, browse: BrowseSettings, closing: Closing) -> tuple[SearchEngine, Fetcher]:
    """The engine and the fetcher for the real web. `closing` registers what has to be closed. Raises ConfigError."""
    return _provider(web, closing), _fetcher(web, browse, closing)


def _provider(web: WebSettings, closing: Closing) -> SearchEngine:
    if not web.provider:
        raise ConfigError(
            "No search provider was given: set web.provider to serper, serpapi, brave, tavily, searxng or json "
            "(`evoseek world serve` is one to try things on), or web.replay to a record."
        )
    api = _described(web) if web.provider == "json" else None
    limits = CallLimits(
        rate_per_s=web.rate_per_s,
        concurrency=web.concurrency,
        waiting=WAITING,
        deadline_s=web.deadline_s,
        budget=web.budget,
        attempts=web.attempts,
        timeout_s=web.timeout_s,
        total_s=web.deadline_s,
    )
    key = _key(web.api_key_env, (api or PROVIDERS[web.provider]).key_env)
    engine = make_provider(web.provider, api_key=key, url=web.url, options=web.options, limits=limits, api=api)
    if not web.cache:
        return engine
    options = {"url": web.url, "options": web.options, "api": web.api}
    cache = Cache(Path(web.cache), provider=web.provider, period_s=web.cache_days * DAY_S, options=options)
    closing(cache.close)
    return StoredWeb(cache, engine)


def _key(named: str, usual: str) -> str:
    """The provider's key, in the environment variable that the config names, or in the usual one."""
    key = os.environ.get(named or usual, "") if named or usual else ""
    if named and not key:
        raise ConfigError(
            f"web.api_key_env is {named}, but there is no environment variable of that name, or it is empty. Set it "
            f"(export {named}=...)."
        )
    return key


def _described(web: WebSettings) -> JsonApi:
    """The provider in web.api."""
    described: dict[str, Any] = {"url": web.url, **web.api}
    known = [field.name for field in fields(JsonApi)]
    if unknown := sorted(described.keys() - set(known)):
        raise ConfigError(f"web.api has no {unknown[0]}. It needs results, and may have {', '.join(known)}.")
    try:
        return TypeAdapter(JsonApi).validate_python(described)
    except ValidationError as error:
        problems = "; ".join(f"web.api.{problem['loc'][0]}: {problem['msg']}" for problem in error.errors())
        raise ConfigError(f"The provider that [web.api] describes is not valid: {problems}.") from error


def _fetcher(web: WebSettings, browse: BrowseSettings, closing: Closing) -> SafeFetcher:
    if browse.proxy:
        check_url(browse.proxy, setting="proxy", example="http://localhost:3128")  # it is saved with the run
    rules = AddressRules(frozenset(browse.ports), browse.allow, browse.deny, browse.allow_private)
    extractor = Extractor()
    closing(extractor.close)
    return SafeFetcher(
        rules,
        extractor,
        timeout_s=browse.timeout_s,
        concurrency=browse.concurrency,
        waiting=WAITING,
        deadline_s=web.deadline_s,
        per_host=browse.per_host,
        interval_s=browse.interval_s,
        attempts=browse.attempts,
        wait_s=browse.wait_s,
        obey_robots=browse.obey_robots,
        proxy=browse.proxy or None,
    )
