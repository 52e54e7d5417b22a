"""The tools of a web environment (DeepResearcher, arXiv 2504.03160, section 3.2): to search the web, and to read pages.

    web_search(queries)   results with title, URL and snippet for each query
    browse(urls)          what pages say about the question; by default only pages among the rollout's results

Neither shows a page that is hidden from the question. Results are outside text: the renderer encodes them so that they
can be neither a call nor an answer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from evoseek.errors import PageError, ToolError
from evoseek.protocols import Fetcher, PageReader, SearchEngine
from evoseek.rollout.prompts import PromptTemplate
from evoseek.rollout.settings import ToolContext, ToolSettings
from evoseek.search.calling import all_of, search_others
from evoseek.text.scripts import well_formed
from evoseek.types import Passage, Question, ToolCall, ToolResult
from evoseek.web.reading import beginning_of

_TITLE, _SNIPPET, _PROBLEM = 30, 100, 100  # maximum words shown: their authors may have no limits


class _Pages(frozenset[str]):
    """Pages by address, with or without a scheme, a fragment or a final slash."""

    def __contains__(self, url: object) -> bool:
        return isinstance(url, str) and super().__contains__(_page(url))


@dataclass(slots=True)
class _WebRollout:
    """The shared state of one rollout's tools."""

    question: Question
    trajectory_id: str
    tools: set[str] = field(default_factory=set[str])
    found: dict[str, str] = field(default_factory=dict[str, str])  # addresses in results, by their spellings
    opened: int = 0

    @property
    def hidden(self) -> _Pages:
        """The pages that are hidden from the question."""
        return _Pages(map(_page, self.question.hidden))


class WebRollouts:
    """The shared states of each rollout's tools: the addresses in its results.

    Tools are bound to a rollout one after the other, before it begins: the first creates new state, the others join it.
    """

    def __init__(self) -> None:
        self._latest: _WebRollout | None = None

    def join(self, tool: str, question: Question, trajectory_id: str) -> _WebRollout:
        """Return the state that the tool shares with the rollout's other tools."""
        latest = self._latest
        if latest is None or latest.trajectory_id != trajectory_id or tool in latest.tools:
            latest = self._latest = _WebRollout(question, trajectory_id)
        latest.tools.add(tool)
        return latest


@dataclass(frozen=True, slots=True)
class WebSearchTool:
    """The tool `web_search`: for each of up to `max_queries` queries the engine's best `k` results."""

    engine: SearchEngine
    template: PromptTemplate
    rollouts: WebRollouts
    k: int = 10
    max_queries: int = 3
    rollout: _WebRollout | None = None

    @classmethod
    def build(cls, settings: ToolSettings, context: ToolContext) -> WebSearchTool:
        rollouts, own = context.shared("rollouts of the web", WebRollouts), context.settings
        return cls(
            context.web().engine, context.prompts["web_results"], rollouts, own.search.top_k, own.web.max_per_call
        )

    @property
    def name(self) -> str:
        return "web_search"

    @property
    def schema(self) -> Mapping[str, object]:
        what = "Search the web. Gives titles, URLs and snippets."
        return _schema(self.name, what, "queries", "What to look for, in a few words each.", self.max_queries)

    def for_question(self, question: Question, trajectory_id: str) -> WebSearchTool:
        return replace(self, rollout=self.rollouts.join(self.name, question, trajectory_id))

    async def __call__(self, call: ToolCall) -> ToolResult:
        """Search; wrong arguments give a result that says so. Raises ToolError if the engine fails or the tool was
        never bound."""
        rollout, queries = _bound(self.rollout), _texts(call, "queries", self.max_queries)
        if not queries:
            return _refused(call, "queries", self.max_queries)
        start = time.perf_counter()
        found = await search_others(self.engine, queries, [rollout.hidden] * len(queries), self.k)
        latency = time.perf_counter() - start
        searches = [
            {"query": query, "passages": [_result(one) for one in passages if one.id not in rollout.hidden]}
            for query, passages in zip(queries, found, strict=True)
        ]
        results = [passage for search in searches for passage in cast(list[Passage], search["passages"])]
        for result in results:
            rollout.found[result.id] = result.id
            rollout.found.setdefault(result.id.split("://", 1)[-1], result.id)
        return ToolResult(call, self.template.text(searches=searches), tuple(results), latency, tuple(queries))


@dataclass(frozen=True, slots=True)
class BrowseTool:
    """The tool `browse`: opens up to `max_urls` pages concurrently, and shows what the reader extracts from them.

    With `only_found`, only pages among the rollout's results are opened. Fragments (#...) do not count, and the address
    of a result may lack its scheme (http://).
    """

    fetcher: Fetcher
    reader: PageReader
    template: PromptTemplate
    rollouts: WebRollouts
    max_urls: int = 3
    only_found: bool = True
    rollout: _WebRollout | None = None

    @classmethod
    def build(cls, settings: ToolSettings, context: ToolContext) -> BrowseTool:
        rollouts, own, web = context.shared("rollouts of the web", WebRollouts), context.settings, context.web()
        template, found = context.prompts["pages"], own.browse.only_found
        return cls(web.fetcher, web.reader, template, rollouts, own.web.max_per_call, found)

    @property
    def name(self) -> str:
        return "browse"

    @property
    def schema(self) -> Mapping[str, object]:
        what = "Read web pages. Gives what they say about the question."
        return _schema(self.name, what, "urls", "Which pages to read.", self.max_urls)

    def for_question(self, question: Question, trajectory_id: str) -> BrowseTool:
        return replace(self, rollout=self.rollouts.join(self.name, question, trajectory_id))

    async def __call__(self, call: ToolCall) -> ToolResult:
        """Read pages; wrong arguments and unreadable pages give results that say so.

        Raises ToolError if fetching or reading failed, after all pages have ended, or if the tool was never bound.
        """
        rollout, urls = _bound(self.rollout), _texts(call, "urls", self.max_urls)
        if not urls:
            return _refused(call, "urls", self.max_urls)
        first, rollout.opened = rollout.opened, rollout.opened + len(urls)
        start = time.perf_counter()
        addresses = dict.fromkeys(rollout.found.get(url, url) for url in map(_address, urls))
        pages = await all_of(self._read(rollout, url, first + i) for i, url in enumerate(addresses))
        latency = time.perf_counter() - start
        passages = tuple(Passage(page.url, page.url, page.title, page.text) for page in pages if page.text)
        return ToolResult(call, self.template.text(pages=pages), passages, latency)

    async def _read(self, rollout: _WebRollout, url: str, number: int) -> _View:
        try:
            if self.only_found and url not in rollout.found:
                raise PageError("It is not among the results of your searches, and only those can be opened.")
            page = None if url in rollout.hidden else await self.fetcher.fetch(url)
            if page is None or page.url in rollout.hidden:  # it may be another address of the page
                raise PageError("There is no such page.")
        except PageError as error:
            return _View(url, problem=beginning_of(str(error), _PROBLEM))
        key = f"{rollout.trajectory_id}/page-{number}"
        text = await self.reader.read(page, task=rollout.question.text, key=key)
        return _View(url, _line(page.title, _TITLE), text)


@dataclass(frozen=True, slots=True)
class _View:
    """A page as shown: with the reader's notes, or the reason why it was not read."""

    url: str
    title: str = ""
    text: str = ""
    problem: str = ""


def _schema(name: str, what: str, argument: str, description: str, most: int) -> Mapping[str, object]:
    texts = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": most, "description": description}
    parameters = {"type": "object", "properties": {argument: texts}, "required": [argument]}
    return {"type": "function", "function": {"name": name, "description": what, "parameters": parameters}}


def _bound(rollout: _WebRollout | None) -> _WebRollout:
    if rollout is None:
        raise ToolError("Web tools must be bound to a rollout first. Call `for_question`.")
    return rollout


def _texts(call: ToolCall, argument: str, most: int) -> list[str]:
    """Return the argument if it is a list of 1 to `most` texts that are not blank, else nothing."""
    given = call.arguments.get(argument)
    given = cast(list[object], given) if isinstance(given, list) else []
    texts = [well_formed(text).strip() for text in given if isinstance(text, str)]
    return texts if all(texts) and len(texts) == len(given) <= most else []


def _refused(call: ToolCall, argument: str, most: int) -> ToolResult:
    expected = f'The tool "{call.name}" takes one argument, "{argument}", which is a list of 1 to {most} texts.'
    return ToolResult(call, expected)


def _result(passage: Passage) -> Passage:
    """Return a result as shown, each text one line of bounded length."""
    url = _address(passage.id)
    title, text = _line(passage.title, _TITLE), _line(passage.text, _SNIPPET)
    return replace(passage, id=url, document_id=url, title=title, text=text)


def _line(text: str, max_words: int) -> str:
    return " ".join(beginning_of(text, max_words).split())


def _address(url: str) -> str:
    """Return a URL without white space and without its fragment, which never leaves a browser."""
    return "".join(url.split()).partition("#")[0]


def _page(url: str) -> str:
    """Return the common part of all spellings of a page's address."""
    return _address(url).split("://", 1)[-1].rstrip("/")
