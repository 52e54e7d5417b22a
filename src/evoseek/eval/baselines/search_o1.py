"""Search-o1 (Li et al., arXiv 2501.05366): the model searches while it reasons, and reads what was found apart from its
chain of reasoning, into which only the outcome goes ("reason in documents")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from evoseek.eval.baselines.attempt import Attempt
    from evoseek.protocols import Tool
    from evoseek.types import Question, ToolCall, ToolResult, Trajectory


class SearchO1:
    """Prompts: baseline_search_o1 for the chain, with `max_calls`; baseline_documents for reading, with `query`,
    `passages` and `reasoning` (what the chain says so far); baseline_information for what the chain is shown, with
    `information` ("" if reading gave none)."""

    searches: ClassVar[bool] = True

    async def __call__(self, attempt: Attempt) -> Trajectory:
        """The chain, with reading in between."""
        search = ReadSearch(attempt.search_tool(), attempt)
        return await attempt.roll("baseline_search_o1", {"max_calls": attempt.calls}, tools=[search])


@dataclass(frozen=True, slots=True)
class ReadSearch:
    """The tool `search`, whose result is what the model takes from the passages in a rollout of its own."""

    search: Tool
    attempt: Attempt
    reasoning: str = ""

    @property
    def name(self) -> str:
        """`search`."""
        return self.search.name

    @property
    def schema(self) -> Mapping[str, object]:
        """That of the search."""
        return self.search.schema

    def for_question(self, question: Question, trajectory_id: str) -> ReadSearch:
        """With the search bound to the rollout."""
        return replace(self, search=self.search.for_question(question, trajectory_id))

    def after(self, reasoning: str) -> ReadSearch:
        """The tool for a call after this reasoning."""
        return replace(self, reasoning=reasoning)

    async def __call__(self, call: ToolCall) -> ToolResult:
        """Search, and read what was found. Raises ToolError, and ends the attempt if reading fails."""
        result = await self.search(call)
        if not result.passages:
            return result
        shown = {"query": call.arguments.get("query"), "passages": result.passages, "reasoning": self.reasoning}
        reading = await self.attempt.roll("baseline_documents", shown, part="reading", may_overflow=True)
        template = self.attempt.answerer.prompts["baseline_information"]
        return replace(result, text=template.text(information=reading.answer or ""))
