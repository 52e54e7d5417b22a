"""The tool `search`: the best passages of an engine for a query."""

from __future__ import annotations

import time
from collections.abc import Mapping
from copy import copy

from evoseek.env.base import ToolContext, ToolSettings
from evoseek.env.prompts import PromptTemplate
from evoseek.errors import ConfigError, ToolError
from evoseek.policy.encoding import well_formed
from evoseek.protocols import QuestionEngine, SearchEngine
from evoseek.search.engines import retried, search
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


class SearchTool:
    """The tool `search` with the argument `query`: the engine's best `k` passages, shown by the template."""

    # also of a tool derived from this one that has an `__init__` of its own
    _hidden = frozenset[str]()

    @classmethod
    def build(cls, settings: ToolSettings, context: ToolContext) -> SearchTool:
        """The tool that searches with the context's engine. A failing engine is retried, unless it retries by itself.
        Raises ConfigError where there is no engine."""
        engine, searching = context.engine, context.settings.search
        if engine is None:
            raise ConfigError("The tool search needs an engine, but there is none here. Leave it out of tools.")
        engine = retried(engine, attempts=searching.attempts, wait_s=searching.wait_s)
        return cls(engine, searching.top_k, template=context.prompts["observation"])

    def __init__(self, engine: SearchEngine | QuestionEngine, k: int = 3, *, template: PromptTemplate) -> None:
        self._engine, self._k, self._template = engine, k, template

    @property
    def name(self) -> str:
        """`search`."""
        return "search"

    @property
    def schema(self) -> Mapping[str, object]:
        """JSON schema of the function."""
        return _SCHEMA

    def for_question(self, question: Question, trajectory_id: str) -> SearchTool:
        """The tool with its engine bound to the rollout, if the engine needs it. It finds no passage of the documents
        that are hidden from the question."""
        engine = self._engine
        if isinstance(engine, QuestionEngine):
            engine = engine.for_question(question, trajectory_id)
        elif not question.hidden:
            return self
        bound = copy(self)
        bound._engine, bound._hidden = engine, question.hidden
        return bound

    async def __call__(self, call: ToolCall) -> ToolResult:
        """Search. An empty query finds nothing; a missing one gives a result that says so. Raises ToolError when the
        engine fails or was never bound."""
        query = call.arguments.get("query")
        if not isinstance(query, str):
            return ToolResult(call, 'The tool "search" takes one argument, "query", which is a text.')
        query = well_formed(query).strip()
        if isinstance(self._engine, QuestionEngine):
            raise ToolError("The search engine depends on the question: bind the tool first (for_question).")
        start = time.perf_counter()
        passages = await self._found(self._engine, query) if query else []
        latency = time.perf_counter() - start
        return ToolResult(call, self._template.text(passages=passages), tuple(passages), latency)

    async def _found(self, engine: SearchEngine, query: str) -> list[Passage]:
        """The best `k` passages that are not hidden: so many more are fetched as it takes to find them."""
        wanted = self._k
        while True:
            (found,) = await search(engine, [query], wanted)
            shown = [passage for passage in found if passage.document_id not in self._hidden]
            if len(shown) == len(found) or len(shown) >= self._k or len(found) < wanted:
                return shown[: self._k]
            wanted *= 2
