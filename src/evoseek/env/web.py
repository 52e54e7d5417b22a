"""The web as rollouts use it: the search engine, the fetcher of pages and the reader of pages."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from evoseek.chat.settings import ReaderSettings
from evoseek.env.chats import Seeded, make_chat
from evoseek.env.prompts import PromptSet
from evoseek.policy.settings import PolicySettings
from evoseek.protocols import Fetcher, PageReader, SearchEngine
from evoseek.search.browse.reading import PageBeginning, ReadingAgent
from evoseek.search.settings import SearchSettings
from evoseek.search.web.calls import web_calls
from evoseek.search.web.settings import BrowseSettings, WebSettings
from evoseek.search.web.stored import Recording, Replay, StoredWeb
from evoseek.types import Message


class OnTheWeb(Protocol):
    """The settings of a run on the web that are read here."""

    search: SearchSettings
    web: WebSettings
    browse: BrowseSettings
    reader: ReaderSettings
    policy: PolicySettings
    run: Seeded


@dataclass(frozen=True, slots=True)
class Web:
    """The web as a rollout's tools have it."""

    engine: SearchEngine
    fetcher: Fetcher
    reader: PageReader


@contextmanager
def open_web(settings: OnTheWeb) -> Generator[Web]:
    """The web of the settings, or the recording of it that is replayed; closed with the context.

    Raises ConfigError or PolicyError, and RunError for a cache or record that cannot be used.
    """
    with ExitStack() as closing:
        if settings.web.provider == "replay":
            replay = Replay(Path(settings.web.record))
            closing.callback(replay.close)
            stored = StoredWeb(replay)
            yield Web(stored, stored, stored)
            return
        engine, fetcher = web_calls(settings.web, settings.browse, settings.search, closing.callback)
        reader = _reader(settings)
        if settings.web.record:
            recording = Recording(Path(settings.web.record), _deciding(settings))
            closing.callback(recording.close)
            engine = fetcher = reader = StoredWeb(recording, engine, fetcher, reader)
        yield Web(engine, fetcher, reader)


def _deciding(config: OnTheWeb) -> Mapping[str, object]:
    """The settings that determine the result of a call."""
    found: dict[str, object] = {f"web.{key}": getattr(config.web, key) for key in ("provider", "url", "api")}
    found |= {"browse.page_words": config.browse.page_words, "reader.model": config.reader.model}
    if config.reader.model:
        found["policy.prompts"] = config.policy.prompts
    return found


def _reader(config: OnTheWeb) -> PageReader:
    words = config.browse.page_words
    if not config.reader.model:
        return PageBeginning(words)
    chat, prompts = make_chat(config.reader, section="reader", seed=config.run.seed, policy=config.policy)
    return ReadingAgent(chat, ReadingPrompts(prompts), memory_words=words)


class ReadingPrompts:
    """A `ReadingPrompt` from the file reading.jinja of a prompt set."""

    def __init__(self, prompts: PromptSet) -> None:
        self._template = prompts["reading"]

    def __call__(self, *, task: str, title: str, memory: str, segment: str) -> list[Message]:
        """One user message."""
        return [Message("user", self._template.marked(task=task, title=title, memory=memory, segment=segment))]
