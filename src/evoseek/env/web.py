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
from evoseek.search.browse.settings import BrowseSettings
from evoseek.search.web.calls import web_calls
from evoseek.search.web.record import Recording, Replay
from evoseek.search.web.settings import WebSettings
from evoseek.search.web.store import StoredWeb
from evoseek.types import Message


class OnTheWeb(Protocol):
    """The settings of a run on the web, as far as they are read here."""

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
        if settings.web.replay:
            replay = Replay(Path(settings.web.replay))
            closing.callback(replay.close)
            stored = StoredWeb(replay)
            yield Web(stored, stored, stored)
            return
        (engine, fetcher), reader = web_calls(settings.web, settings.browse, closing.callback), _reader(settings)
        if settings.web.record:
            recording = Recording(Path(settings.web.record), _deciding(settings))
            closing.callback(recording.close)
            engine = fetcher = reader = StoredWeb(recording, engine, fetcher, reader)
        yield Web(engine, fetcher, reader)


def _deciding(config: OnTheWeb) -> Mapping[str, object]:
    """The settings that determine the result of a call."""
    sections: dict[str, dict[str, object]] = {
        "web": config.web.model_dump(mode="json", include={"provider", "url", "options", "api"})
    }
    sections["reader"] = {"model": config.reader.model}  # before what is of no matter to the other way of reading
    if config.reader.model:
        how = {"segment_words", "memory_words", "max_segments", "skip_after"}
        sections["reader"] |= config.reader.model_dump(mode="json", include=how)
        sections["policy"] = {"prompts": config.policy.prompts}
    else:
        sections["browse"] = {"page_words": config.browse.page_words}
    return {f"{section}.{key}": value for section, keys in sections.items() for key, value in keys.items()}


def _reader(config: OnTheWeb) -> PageReader:
    reader = config.reader
    if not reader.model:
        return PageBeginning(config.browse.page_words)
    chat, prompts = make_chat(reader, section="reader", seed=config.run.seed, policy=config.policy)
    return ReadingAgent(
        chat,
        ReadingPrompts(prompts),
        segment_words=reader.segment_words,
        memory_words=reader.memory_words,
        max_segments=reader.max_segments,
        skip_after=reader.skip_after,
    )


class ReadingPrompts:
    """A `ReadingPrompt` from the file reading.jinja of a prompt set."""

    def __init__(self, prompts: PromptSet) -> None:
        self._template = prompts["reading"]

    def __call__(self, *, task: str, title: str, memory: str, segment: str) -> list[Message]:
        """One user message."""
        return [Message("user", self._template.marked(task=task, title=title, memory=memory, segment=segment))]
