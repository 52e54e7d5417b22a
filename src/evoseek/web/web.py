"""The web for rollouts: the search engine, the fetcher of pages and the reader of pages."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from evoseek.chat.chats import make_chat
from evoseek.errors import ConfigError
from evoseek.protocols import Fetcher, PageReader, SearchEngine
from evoseek.search.settings import SearchSettings
from evoseek.web.address import AddressRules
from evoseek.web.extract import Extractor
from evoseek.web.fetch import SafeFetcher
from evoseek.web.providers import PROVIDERS, CallLimits, JsonApi, WebEngine
from evoseek.web.reading import PageBeginning, ReadingAgent
from evoseek.web.settings import BrowseSettings, WebSettings
from evoseek.web.stored import Cache, Recording, Replay, StoredWeb

PER_HOST = 2  # concurrent requests to a foreign host


@dataclass(frozen=True, slots=True)
class Web:
    """The web for a rollout's tools."""

    engine: SearchEngine
    fetcher: Fetcher
    reader: PageReader


@contextmanager
def open_web(settings: Any) -> Generator[Web]:
    """Open the web of a run's settings, or the recording to replay; closed with the context.

    Raises ConfigError or PolicyError, and RunError for a cache or record that cannot be used.
    """
    with ExitStack() as closing:
        if settings.web.provider == "replay":
            replay = Replay(Path(settings.web.record))
            closing.callback(replay.close)
            stored = StoredWeb(replay)
            yield Web(stored, stored, stored)
            return
        engine: SearchEngine = make_web_engine(settings.web, settings.search, closing)
        fetcher: Fetcher = make_fetcher(settings.browse, settings.search, closing)
        reader = _reader(settings)
        if settings.web.record:
            recording = Recording(Path(settings.web.record), _deciding(settings))
            closing.callback(recording.close)
            engine = fetcher = reader = StoredWeb(recording, engine, fetcher, reader)
        yield Web(engine, fetcher, reader)


def _deciding(config: Any) -> Mapping[str, object]:
    """Return the settings that determine the result of a call."""
    found: dict[str, object] = {f"web.{key}": getattr(config.web, key) for key in ("provider", "url", "api")}
    found |= {"browse.page_words": config.browse.page_words, "reader.model": config.reader.model}
    if config.reader.model:
        found["policy.prompts"] = config.policy.prompts
    return found


def _reader(config: Any) -> PageReader:
    words = config.browse.page_words
    if not config.reader.model:
        return PageBeginning(words)
    chat, prompts = make_chat(config.reader, section="reader", seed=config.run.seed, policy=config.policy)
    return ReadingAgent(chat, prompts["reading"], memory_words=words)


def make_web_engine(web: WebSettings, search: SearchSettings, closing: ExitStack) -> SearchEngine:
    """Make the search provider of the settings, closed with `closing`. Raises ConfigError."""
    if not web.provider:
        raise ConfigError(
            "No search provider was given. Set web.provider to serper, serpapi, brave, tavily, searxng or json "
            "(`evoseek world serve` is one for tests), or to replay, with web.record, for a recorded run."
        )
    limits = CallLimits(
        rate_per_s=web.rate_per_s,
        concurrency=web.concurrency,
        budget=web.budget,
        attempts=search.attempts,
        wait_s=search.wait_s,
    )
    api = _described(web)
    engine = WebEngine(web.provider, api, api_key=os.environ.get(api.key_env, ""), limits=limits)
    if not web.cache:
        return engine
    cache = Cache(Path(web.cache), provider=web.provider, options={"url": web.url, "api": web.api})
    closing.callback(cache.close)
    return StoredWeb(cache, engine)


def _described(web: WebSettings) -> JsonApi:
    usual: dict[str, Any] = asdict(PROVIDERS[web.provider]) if web.provider in PROVIDERS else {"url": "", "options": {}}
    described = usual | web.api | ({"url": web.url} if web.url else {})
    known = [field.name for field in fields(JsonApi)]
    if unknown := sorted(described.keys() - set(known)):
        raise ConfigError(f"web.api has no {unknown[0]}. Give some of {', '.join(known)}.")
    if isinstance(described["options"], dict):
        described["options"] = usual["options"] | described["options"]
    try:
        return TypeAdapter(JsonApi).validate_python(described)
    except ValidationError as error:
        problems = "; ".join(f"web.api.{problem['loc'][0]}: {problem['msg']}" for problem in error.errors())
        raise ConfigError(f"The provider in [web.api] is not valid: {problems}.") from error


def make_fetcher(browse: BrowseSettings, search: SearchSettings, closing: ExitStack) -> SafeFetcher:
    """Make the fetcher of the settings, closed with `closing`. Raises ConfigError."""
    extractor = Extractor()
    closing.callback(extractor.close)
    return SafeFetcher(
        AddressRules(browse.allow, browse.deny, browse.allow_private),
        extractor,
        timeout_s=browse.timeout_s,
        concurrency=browse.concurrency,
        per_host=PER_HOST if browse.interval_s else browse.concurrency,
        interval_s=browse.interval_s,
        attempts=search.attempts,
        wait_s=search.wait_s,
    )
