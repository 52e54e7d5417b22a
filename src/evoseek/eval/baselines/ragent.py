"""RAgent (the agentic baseline of Li et al., arXiv 2501.05366, section 4.2; after ReAct, arXiv 2210.03629): the model
searches while it reasons, is shown the beginnings of ten passages, and opens those that it wants to read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from evoseek.types import ToolResult

if TYPE_CHECKING:
    from evoseek.env.prompts import PromptTemplate
    from evoseek.eval.baselines.attempt import Attempt
    from evoseek.protocols import Tool
    from evoseek.types import Passage, Question, ToolCall, Trajectory

SNIPPETS = 10  # as in the paper
_SCHEMA: Mapping[str, object] = {
    "type": "function",
    "function": {
        "name": "open",
        "description": "Read passages among the results of your searches in full.",
        "parameters": {
            "type": "object",
            "properties": {"numbers": {"type": "string", "description": "Their numbers, such as 2, 5."}},
            "required": ["numbers"],
        },
    },
}


class RAgent:
    """Prompts: baseline_ragent, with `max_calls` and `most` (passages that may be opened at once: search.top_k);
    baseline_snippets for results, with `passages` and the number of the `first`; baseline_opened, with `opened` (pairs
    of number and passage)."""

    searches: ClassVar[bool] = True

    async def __call__(self, attempt: Attempt) -> Trajectory:
        """One rollout with two tools, each call of which counts."""
        prompts, most = attempt.answerer.prompts, attempt.answerer.searching.top_k
        found: list[Passage] = []
        search = SnippetSearch(attempt.search_tool(SNIPPETS), prompts["baseline_snippets"], found)
        tools = [search, OpenTool(prompts["baseline_opened"], found, most)]
        return await attempt.roll("baseline_ragent", {"max_calls": attempt.calls, "most": most}, tools=tools)


@dataclass(frozen=True, slots=True)
class SnippetSearch:
    """The tool `search`, which shows the beginnings of passages, numbered through a rollout."""

    search: Tool
    template: PromptTemplate
    found: list[Passage]

    @property
    def name(self) -> str:
        """`search`."""
        return self.search.name

    @property
    def schema(self) -> Mapping[str, object]:
        """That of the search."""
        return self.search.schema

    def for_question(self, question: Question, trajectory_id: str) -> SnippetSearch:
        """With the search bound to the rollout."""
        return replace(self, search=self.search.for_question(question, trajectory_id))

    async def __call__(self, call: ToolCall) -> ToolResult:
        """Search. Raises ToolError."""
        result = await self.search(call)
        if not result.passages:
            return result
        first = len(self.found) + 1
        self.found.extend(result.passages)
        return replace(result, text=self.template.text(passages=result.passages, first=first))


@dataclass(frozen=True, slots=True)
class OpenTool:
    """The tool `open`: passages in full, by their numbers."""

    template: PromptTemplate
    found: list[Passage]
    most: int
    name: str = "open"
    schema: Mapping[str, object] = field(default_factory=lambda: _SCHEMA)

    def for_question(self, question: Question, trajectory_id: str) -> OpenTool:
        """Itself: it belongs to one rollout."""
        return self

    async def __call__(self, call: ToolCall) -> ToolResult:
        """The passages of the first `most` numbers; a text that says so if there is none."""
        numbers = dict.fromkeys(map(int, re.findall(r"(?<!\d)\d{1,6}(?!\d)", str(call.arguments.get("numbers")))))
        known = [number for number in numbers if 1 <= number <= len(self.found)][: self.most]
        if not known:
            said = f"1 to {len(self.found)}" if self.found else "none yet: search first"
            return ToolResult(call, f'The tool "open" takes the numbers of passages that were found ({said}).')
        opened = [(number, self.found[number - 1]) for number in known]
        return ToolResult(call, self.template.text(opened=opened), tuple(passage for _, passage in opened))
