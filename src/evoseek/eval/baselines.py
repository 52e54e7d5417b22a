"""The built-in baselines, from the answer alone to an agent that searches and opens passages. Unlike in some of the
papers, no prompt has examples."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from evoseek.types import Passage, StopReason, ToolResult

if TYPE_CHECKING:
    from evoseek.eval.attempt import Attempt
    from evoseek.protocols import Tool
    from evoseek.rollout.prompts import PromptTemplate
    from evoseek.types import Question, ToolCall, Trajectory


class Direct:
    """Asks for the answer alone, from what the model knows. Prompt: baseline_direct."""

    searches: ClassVar[bool] = False

    async def __call__(self, attempt: Attempt) -> Trajectory:
        return await attempt.roll("baseline_direct")


class ChainOfThought:
    """Chain of thought (Wei et al., arXiv 2201.11903): asks for reasoning and then the answer, from what the model
    knows. Prompt: baseline_cot."""

    searches: ClassVar[bool] = False

    async def __call__(self, attempt: Attempt) -> Trajectory:
        return await attempt.roll("baseline_cot")


class RAG:
    """Retrieval-augmented generation (Lewis et al., arXiv 2005.11401): searches once, for the question itself, and
    shows the passages with it. Prompt: baseline_rag, with `passages`."""

    searches: ClassVar[bool] = True

    async def __call__(self, attempt: Attempt) -> Trajectory:
        passages = await attempt.retrieve(attempt.question.text)
        return await attempt.roll("baseline_rag", {"passages": passages or ()})


MOST_PASSAGES = 15  # as in the paper
_MARKUP = re.compile(r"<[^<>\n]{1,40}>")  # tags and control tokens
_SENTENCE = re.compile(
    r"\S.*?(?:(?<!\b[A-Z])(?<!\b[A-Z][a-z])[.!?](?=\s|\Z)|[。！？]|(?=\n))", re.DOTALL
)  # initials, Dr. and St. do not end one


class IRCoT:
    """IRCoT (Trivedi et al., arXiv 2212.10509): retrieval interleaved with the sentences of a chain of thought.

    passages <- search(question)
    repeat: sentence <- model(question, passages, thoughts); an answer ends it
            passages <- passages and search(sentence)
    when no search is left: answer <- model(question, passages, thoughts)

    Prompts: baseline_ircot for a sentence, baseline_ircot_answer at the end, both with `passages` and `thoughts`. An
    answer in tags ends the chain, not "the answer is" as in the paper.
    """

    searches: ClassVar[bool] = True

    async def __call__(self, attempt: Attempt) -> Trajectory:
        passages, thoughts, query = dict[str, Passage](), list[str](), attempt.question.text
        while (found := await attempt.retrieve(query)) is not None:
            new = [passage for passage in found if passage.id not in passages]
            passages |= {passage.id: passage for passage in new[: MOST_PASSAGES - len(passages)]}
            shown = {"passages": list(passages.values()), "thoughts": thoughts}
            step = await attempt.roll("baseline_ircot", shown, part="step", may_overflow=bool(thoughts))
            query = first_sentence(step.actions[-1].text, step.stop_reason)
            if step.answer is not None or not query:
                return step
            thoughts.append(query)
        shown = {"passages": list(passages.values()), "thoughts": thoughts}
        return await attempt.roll("baseline_ircot_answer", shown, may_overflow=bool(thoughts))


def first_sentence(text: str, reason: StopReason) -> str:
    """Return the first sentence after a block of thought, without markup; "" for none. A text without a sentence's end
    is one, unless it was cut (`max_tokens`)."""
    plain = _plain(text.rpartition("</think>")[2]) or _plain(text)
    found = _SENTENCE.match(plain)
    return " ".join((found[0] if found else "" if reason is StopReason.MAX_TOKENS else plain).split())


def _plain(text: str) -> str:
    return _MARKUP.sub(" ", text).strip()


@dataclass(frozen=True, slots=True)
class ViewedSearch:
    """The tool `search` with another view of its passages: `view` makes a result's text from the result and the
    reasoning before the call."""

    search: Tool
    view: Callable[[ToolResult, str], Awaitable[str]]
    reasoning: str = ""

    @property
    def name(self) -> str:
        return self.search.name

    @property
    def schema(self) -> Mapping[str, object]:
        return self.search.schema

    def for_question(self, question: Question, trajectory_id: str) -> ViewedSearch:
        return replace(self, search=self.search.for_question(question, trajectory_id))

    def after(self, reasoning: str) -> ViewedSearch:
        return replace(self, reasoning=reasoning)

    async def __call__(self, call: ToolCall) -> ToolResult:
        result = await self.search(call)
        return replace(result, text=await self.view(result, self.reasoning)) if result.passages else result


class SearchO1:
    """Search-o1 (Li et al., arXiv 2501.05366): the model searches while it reasons, and reads what was found apart from
    its chain of reasoning, into which only the outcome goes ("reason in documents").

    Prompts: baseline_search_o1 for the chain, with `max_calls`; baseline_documents for reading, with `query`,
    `passages` and `reasoning` (the chain so far); baseline_information for what the chain is shown, with
    `information` ("" if reading gave none)."""

    searches: ClassVar[bool] = True

    async def __call__(self, attempt: Attempt) -> Trajectory:

        async def read(found: ToolResult, reasoning: str) -> str:
            shown = {"query": found.call.arguments.get("query"), "passages": found.passages, "reasoning": reasoning}
            reading = await attempt.roll("baseline_documents", shown, part="reading", may_overflow=True)
            return attempt.answerer.prompts["baseline_information"].text(information=reading.answer or "")

        search = ViewedSearch(attempt.search_tool(), read)
        return await attempt.roll("baseline_search_o1", {"max_calls": attempt.calls}, tools=[search])


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
    """RAgent (the agentic baseline of Li et al., arXiv 2501.05366, section 4.2; after ReAct, arXiv 2210.03629): the
    model searches while it reasons, is shown the beginnings of ten passages, and opens some of them.

    Prompts: baseline_ragent, with `max_calls` and `most` (passages that one call may open: search.top_k);
    baseline_snippets for results, with `passages` and the number of the `first`; baseline_opened, with `opened` (pairs
    of number and passage)."""

    searches: ClassVar[bool] = True

    async def __call__(self, attempt: Attempt) -> Trajectory:
        prompts, most = attempt.answerer.prompts, attempt.answerer.searching.top_k
        found: list[Passage] = []

        async def snippets(result: ToolResult, _: str) -> str:
            first = len(found) + 1
            found.extend(result.passages)
            return prompts["baseline_snippets"].text(passages=result.passages, first=first)

        search = ViewedSearch(attempt.search_tool(SNIPPETS), snippets)
        tools = [search, OpenTool(prompts["baseline_opened"], found, most)]
        return await attempt.roll("baseline_ragent", {"max_calls": attempt.calls, "most": most}, tools=tools)


@dataclass(frozen=True, slots=True)
class OpenTool:
    """The tool `open`: shows passages in full, by their numbers."""

    template: PromptTemplate
    found: list[Passage]
    most: int
    name: str = "open"
    schema: Mapping[str, object] = field(default_factory=lambda: _SCHEMA)

    def for_question(self, question: Question, trajectory_id: str) -> OpenTool:
        """Return the tool itself: it belongs to one rollout."""
        return self

    async def __call__(self, call: ToolCall) -> ToolResult:
        numbers = dict.fromkeys(map(int, re.findall(r"(?<!\d)\d{1,6}(?!\d)", str(call.arguments.get("numbers")))))
        known = [number for number in numbers if 1 <= number <= len(self.found)][: self.most]
        if not known:
            known_numbers = f"1 to {len(self.found)}" if self.found else "none yet: search first"
            return ToolResult(call, f'The tool "open" takes the numbers of passages that were found ({known_numbers}).')
        opened = [(number, self.found[number - 1]) for number in known]
        return ToolResult(call, self.template.text(opened=opened), tuple(passage for _, passage in opened))
