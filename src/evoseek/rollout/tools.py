"""The tool `search`: the best passages of an engine for a query; and Python functions as tools, such as `note`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import replace
from inspect import cleandoc, isawaitable, signature
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model

from evoseek.errors import ConfigError, ToolError, first_problem
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


async def note(text: str) -> str:
    """Keep a text, such as a fact that you have found: older results leave the context when it is full."""
    return "Noted."


class FunctionTool:
    """A Python function as a tool: its name, its docstring, and its arguments by their type hints.

    The result is a text, a number, passages or a ToolResult; a coroutine function is awaited. Arguments that do not fit
    are the model's mistake, so the result says so; anything that the function raises is a failure.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        """Raise ConfigError for a function that does not describe itself."""
        self.name, about = function.__name__, cleandoc(function.__doc__ or "")
        self._function = function
        try:
            given = signature(function, eval_str=True).parameters.values()
            if not about or any(one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) for one in given):
                raise TypeError("it has no docstring, or arguments without a name")
            hints = {one.name: str if one.annotation is one.empty else one.annotation for one in given}
            fields: dict[str, Any] = {
                one.name: (hints[one.name], ... if one.default is one.empty else one.default) for one in given
            }
            self._arguments: type[BaseModel] = create_model(self.name, __config__=ConfigDict(extra="forbid"), **fields)
        except (TypeError, NameError, PydanticUserError) as error:
            why = str(error).partition(". ")[0]
            raise ConfigError(
                f"The function {self.name} cannot be a tool: {why}. Expected a docstring, which describes it to the "
                "model, and arguments by name (no * or **) whose types JSON has."
            ) from error
        parameters = self._arguments.model_json_schema()
        for described in (parameters, *parameters.get("properties", {}).values()):
            described.pop("title", None)
        description = " ".join(about.partition("\n\n")[0].split())
        called = {"name": self.name, "description": description, "parameters": parameters}
        self.schema: Mapping[str, object] = {"type": "function", "function": called}

    def for_question(self, question: Question, trajectory_id: str) -> FunctionTool:
        """Return itself: a function keeps nothing between calls."""
        return self

    async def __call__(self, call: ToolCall) -> ToolResult:
        """Call the function. Raises what it raises."""
        try:
            given = dict(self._arguments.model_validate(dict(call.arguments)))
        except ValidationError as error:
            return ToolResult(call, f'The tool "{self.name}" cannot take these arguments: {first_problem(error)}.')
        start = time.perf_counter()
        made = self._function(**given)
        found: object = await made if isawaitable(made) else made
        latency = time.perf_counter() - start
        if isinstance(found, ToolResult):
            return replace(found, call=call)
        if isinstance(found, str | int | float):
            return ToolResult(call, str(found), latency_s=latency)
        many = tuple(cast("Iterable[object]", found)) if isinstance(found, list | tuple) else (found,)
        passages = tuple(passage for passage in many if isinstance(passage, Passage))
        if len(passages) < len(many):
            raise TypeError(f"it gave {found!r:.80}, expected a text, a number, passages or a ToolResult")
        shown = "\n\n".join(passage.contents for passage in passages) or "Nothing was found."
        queries = tuple(value for value in given.values() if isinstance(value, str))
        return ToolResult(call, shown, passages, latency, queries)
