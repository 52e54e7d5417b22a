"""Is what an engine found for a query useful, or noise? By a judge, or in a generated world by truth.

Useful means: whoever reads the passages can answer the query (ZeroSearch, arXiv 2505.04588, section 3.2; there for each
document, here for those that were shown together, as a simulator will write them).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from evoseek.corpus.statements import states
from evoseek.corpus.world import World
from evoseek.env.prompts import PromptSet
from evoseek.errors import ToolError
from evoseek.protocols import Chat
from evoseek.reward.verdict import parse_verdict
from evoseek.systems.search_records import SearchRecord
from evoseek.types import Message

FORM: Mapping[str, object] = {
    "type": "object",
    "properties": {"useful": {"type": "boolean"}},
    "required": ["useful"],
    "additionalProperties": False,
}

Label = Callable[[SearchRecord], Awaitable[bool]]
"""Whether a record's passages are useful. Raises ToolError if that cannot be had."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """The records with their labels, in order; of those that have none, why. They are left out, never guessed."""

    records: tuple[SearchRecord, ...]
    failures: tuple[str, ...]


async def label_records(
    records: Sequence[SearchRecord], label: Label, *, progress: Callable[[int, int], None] = lambda done, of: None
) -> Labelled:
    """Label all records, side by side. `progress` is told how many are done."""
    done = 0

    async def one(record: SearchRecord) -> SearchRecord | ToolError:
        nonlocal done
        try:
            return replace(record, useful=await label(record))
        except ToolError as error:
            return error
        finally:
            done += 1
            progress(done, len(records))

    results = await asyncio.gather(*(one(record) for record in records))
    return Labelled(
        tuple(result for result in results if isinstance(result, SearchRecord)),
        tuple(str(result) for result in results if isinstance(result, ToolError)),
    )


class JudgeLabel:
    """A `Label` by a model, which is asked with simulator_label.jinja of a prompt set."""

    def __init__(self, chat: Chat, prompts: PromptSet) -> None:
        self._chat, self._template = chat, prompts["simulator_label"]

    async def __call__(self, record: SearchRecord) -> bool:
        """What the model says. Raises ToolError."""
        values = {"question": record.question.text, "query": record.query, "passages": record.passages}
        messages = [Message("user", self._template.marked(**values))]
        key = f"label/{record.question.id}/{record.page}/{record.query}"
        return parse_verdict(await self._chat.chat(messages, key=key, form=FORM), ("useful", "noisy"))


class TrueLabel:
    """A `Label` by the world that the records come from: useful if every fact that the query asks for is stated.

    A query that has no answer there (an unknown name, no words of the world's grammar) has noise alone.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    async def __call__(self, record: SearchRecord) -> bool:
        """What is true."""
        verdicts = [self._world.oracle(text) for text in (record.query, f"What is {record.query}?")]
        chain = next((verdict.chain for verdict in verdicts if verdict.answerable), ())
        texts = [passage.text for passage in record.passages]
        return bool(chain) and all(states(texts, fact.subject, fact.relation, [fact.object]) for fact in chain)
