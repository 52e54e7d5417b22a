"""The tool `search`: the best passages of an engine for a query."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from copy import copy
from dataclasses import replace

from pydantic import Field

from evoseek.errors import ConfigError, ToolError
from evoseek.protocols import QuestionEngine, SearchEngine
from evoseek.rollout.prompts import PromptTemplate
from evoseek.rollout.settings import ToolContext, ToolSettings
from evoseek.search.calling import retried, search_others
from evoseek.text.scripts import well_formed
from evoseek.types import Passage, Question, ToolCall, ToolResult

_SCHEMA: Mapping[str, object] = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search a collection of documents and read the best passages.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What to look for, in a few words."}},
            "required": ["query"],
        },
    },
}


_MARKUP = re.compile("<[^<>]*>")


class SearchTool:
    """The tool `search` with the argument `query`: the engine's best `k` passages, shown by the template."""

    class Settings(ToolSettings):
        """Settings of the tool `search`."""

        context: int = Field(
            default=0,
            ge=0,
            le=100_000,
            description="Number of characters, the last that the model wrote before its query, that the engine gets "
            "before the query; 0 sends the query alone.",
        )

    # also of a derived tool with its own `__init__`
    _context, _reasoning, _hidden = 0, "", frozenset[str]()

    @classmethod
    def build(cls, settings: Settings, context: ToolContext) -> SearchTool:
        """Return the tool for the context's engine. A failing engine is retried, unless it retries itself. Raises
        ConfigError without an engine."""
        engine, searching = context.engine, context.settings.search
        if engine is None:
            raise ConfigError("The tool search needs an engine, but there is none. Leave search out of tools.")
        engine = retried(engine, attempts=searching.attempts, wait_s=searching.wait_s)
        template = context.prompts["observation"]
        return cls(engine, searching.top_k, template=template, context=settings.context)

    def __init__(
        self,
        engine: SearchEngine | QuestionEngine,
        k: int = 3,
        *,
        template: PromptTemplate,
        context: int = 0,
    ) -> None:
        self._engine, self._k, self._template, self._context = engine, k, template, context

    @property
    def name(self) -> str:
        return "search"

    @property
    def schema(self) -> Mapping[str, object]:
        return _SCHEMA

    def for_question(self, question: Question, trajectory_id: str) -> SearchTool:
        """Bind the tool's engine to the rollout, if the engine needs it. The tool finds no passage of documents that
        are hidden from the question."""
        engine = self._engine
        if isinstance(engine, QuestionEngine):
            engine = engine.for_question(question, trajectory_id)
        elif not question.hidden:
            return self
        bound = copy(self)
        bound._engine, bound._hidden = engine, question.hidden
        return bound

    def after(self, reasoning: str) -> SearchTool:
        """Return the tool for the next call of a model that has written `reasoning`, if the search uses it."""
        if not self._context:
            return self
        bound = copy(self)
        bound._reasoning = well_formed(reasoning)
        return bound

    async def __call__(self, call: ToolCall) -> ToolResult:
        """Search. An empty query finds nothing; a missing query gives a result that says so. Raises ToolError if the
        engine fails or was never bound."""
        query = call.arguments.get("query")
        if not isinstance(query, str):
            return ToolResult(call, 'The tool "search" takes one argument, "query", which is a text.')
        query = well_formed(query).strip()
        if isinstance(self._engine, QuestionEngine):
            raise ToolError("The search engine depends on the question. Bind the tool first (for_question).")
        start = time.perf_counter()
        passages = list[Passage]()
        if query:
            (passages,) = await search_others(self._engine, [self._searched(query)], [self._hidden], self._k)
        latency = time.perf_counter() - start
        asked = (query,) if query else ()
        return ToolResult(call, self._template.text(passages=passages, first=1), tuple(passages), latency, asked)

    def numbered(self, result: ToolResult, first: int) -> ToolResult:
        return replace(result, text=self._template.text(passages=result.passages, first=first))

    def _searched(self, query: str) -> str:
        """Return the engine's query: the model's last words before its call, without the call's markup, and the
        query."""
        before = self._reasoning.rpartition(query)[0].rpartition("<")[0]
        words = " ".join(_MARKUP.sub(" ", before).split())[-self._context :] if self._context else ""
        return f"{words}\n{query}" if words else query
