"""A tool of one's own: it searches, and shows the beginning of each passage alone.

It has the name `search`, since that is a call that the tiny policy can write; with a model that calls tools by its chat
template any name and arguments will do.
"""

from typing import ClassVar

from pydantic import Field

from evoseek.env.context import ToolContext
from evoseek.env.settings import ToolSettings
from evoseek.types import Question, ToolCall, ToolResult


class FirstWords:
    """Implements `evoseek.protocols.Tool`."""

    name = "search"
    schema: ClassVar = {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search a collection of documents and read how the best passages begin.",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
        },
    }

    class Settings(ToolSettings):
        """What stands in the tool's table beside the name."""

        words: int = Field(default=20, ge=1, description="Number of words of a passage that are shown.")

    def __init__(self, engine, words: int, k: int) -> None:
        self._engine, self._words, self._k = engine, words, k

    @classmethod
    def build(cls, settings: Settings, context: ToolContext):
        """From settings: the context has the engine, the prompts and the settings of the whole run."""
        return cls(context.engine, settings.words, context.settings.search.top_k)

    def for_question(self, question: Question, trajectory_id: str):
        """The tool as one rollout has it: nothing here depends on that."""
        return self

    async def __call__(self, call: ToolCall) -> ToolResult:
        """Run the call. An engine that fails raises ToolError, and the rollout ends Invalid."""
        query = call.arguments.get("query")
        if not isinstance(query, str):
            return ToolResult(call, 'The tool "search" takes one argument, "query", which is a text.')
        (passages,) = await self._engine.search([query], self._k)
        shown = [" ".join([passage.title, *passage.text.split()[: self._words]]) for passage in passages]
        return ToolResult(call, " ".join(shown), tuple(passages))
