"""The web as rollouts use it: the search engine, the fetcher of pages and the reader of pages."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evoseek.chat.chats import make_chat
from evoseek.protocols import Fetcher, PageReader, SearchEngine
from evoseek.web.calls import make_fetcher, make_web_engine
from evoseek.web.reading import PageBeginning, ReadingAgent
from evoseek.web.stored import Recording, Replay, StoredWeb


@dataclass(frozen=True, slots=True)
class Web:
    """The web as a rollout's tools have it."""

    engine: SearchEngine
    fetcher: Fetcher
    reader: PageReader


@contextmanager
def open_web(settings: Any) -> Generator[Web]:
    """The web of a run's settings, or the recording of it that is replayed; closed with the context.

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
    """The settings that determine the result of a call."""
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
