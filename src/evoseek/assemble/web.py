"""From a config to the web as rollouts have it: who searches it, who opens its pages, and who reads them."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from evoseek.assemble.agent import Agent, Solver
from evoseek.assemble.chat import make_chat
from evoseek.assemble.web_calls import web_calls
from evoseek.config import Config
from evoseek.env.prompts import PromptSet
from evoseek.env.reading import ReadingPrompts
from evoseek.env.solver import SolverEnv
from evoseek.env.web_tools import BrowseTool, WebRollouts, WebSearchTool
from evoseek.errors import ConfigError
from evoseek.protocols import Fetcher, PageReader, SearchEngine, Tool
from evoseek.search.browse.beginning import PageBeginning
from evoseek.search.browse.reading import ReadingAgent
from evoseek.search.web.record import (
    Recording,
    RecordingEngine,
    RecordingFetcher,
    RecordingReader,
    Replay,
    ReplayEngine,
    ReplayFetcher,
    ReplayReader,
)


@dataclass(frozen=True, slots=True)
class Web:
    """The web as a rollout's tools have it."""

    engine: SearchEngine
    fetcher: Fetcher
    reader: PageReader

    def tools(self, config: Config, prompts: PromptSet) -> list[Tool]:
        """`web_search` and `browse`, as config and prompts have them."""
        web, browse, k = config.web, config.browse, config.search.top_k
        results, pages = prompts["web_results"], prompts["pages"]
        rollouts = WebRollouts()
        return [
            WebSearchTool(self.engine, results, rollouts, k, web.max_queries),
            BrowseTool(self.fetcher, self.reader, pages, rollouts, browse.max_urls, browse.only_found),
        ]

    def solver(self, agent: Agent) -> Solver:
        """The agent at work on the web."""
        tools = self.tools(agent.config, agent.prompts)
        renderer = agent.renderer(tools)
        return Solver(agent, renderer, SolverEnv(tools, agent.prompts, renderer.format, prompt="solver_web"))


def web_of(config: Config) -> AbstractContextManager[Web | None]:
    """The web for a system that is trained on it; None for the others. Raises as `open_web` does."""
    return open_web(config) if config.run.system == "deepresearcher" else nullcontext()


@contextmanager
def open_web(config: Config) -> Generator[Web]:
    """The web of the config, or the record of it that is to be replayed; closed with the context.

    Raises ConfigError or PolicyError, and RunError for a cache or record that cannot be used.
    """
    settings = config.web
    _check(config)
    with ExitStack() as closing:
        if settings.replay:
            replay = Replay(Path(settings.replay))
            closing.callback(replay.close)
            yield Web(ReplayEngine(replay), ReplayFetcher(replay), ReplayReader(replay))
            return
        (engine, fetcher), reader = web_calls(settings, config.browse, closing.callback), _reader(config)
        if settings.record:
            recording = Recording(Path(settings.record), _deciding(config))
            closing.callback(recording.close)
            engine, fetcher = RecordingEngine(engine, recording), RecordingFetcher(fetcher, recording)
            reader = RecordingReader(reader, recording)
        yield Web(engine, fetcher, reader)


def _check(config: Config) -> None:
    """Raises ConfigError for settings that contradict each other."""
    web = config.web
    if web.record and web.replay:
        raise ConfigError(
            f"web.record is {web.record} and web.replay is {web.replay}. Take down a run, or replay one: leave one of "
            "them empty."
        )


def _deciding(config: Config) -> Mapping[str, object]:
    """The settings that decide what the web says to the same call."""
    sections: dict[str, dict[str, object]] = {
        "web": config.web.model_dump(mode="json", include={"provider", "url", "options", "api"})
    }
    sections["reader"] = {"model": config.reader.model}  # before what is of no matter to the other way of reading
    if config.reader.model:
        how = {"prompts", "temperature", "segment_words", "memory_words", "max_segments", "skip_after"}
        sections["reader"] |= config.reader.model_dump(mode="json", include=how)
    else:
        sections["browse"] = {"page_words": config.browse.page_words}
    return {f"{section}.{key}": value for section, keys in sections.items() for key, value in keys.items()}


def _reader(config: Config) -> PageReader:
    reader = config.reader
    if not reader.model:
        return PageBeginning(config.browse.page_words)
    chat, prompts = make_chat(reader, section="reader", seed=config.run.seed, device=config.policy.device)
    return ReadingAgent(
        chat,
        ReadingPrompts(prompts),
        segment_words=reader.segment_words,
        memory_words=reader.memory_words,
        max_segments=reader.max_segments,
        skip_after=reader.skip_after,
    )
