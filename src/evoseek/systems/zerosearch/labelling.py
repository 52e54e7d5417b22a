"""Labelling an engine's results for a query as useful or noisy: by a judge, or in a generated world by truth.

Useful means: whoever reads the passages can answer the query (ZeroSearch, arXiv 2505.04588, section 3.2; there for each
document, here for those that were shown together, as a simulator will write them).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from rich.console import Console

from evoseek.assembly.context import Context
from evoseek.assembly.inputs import inputs_of
from evoseek.curation.batches import BatchWork, Made
from evoseek.errors import DataError, EvoseekError, ToolError
from evoseek.protocols import Chat
from evoseek.reward.judge import parse_verdict, verdict_form
from evoseek.rollout.prompts import PromptSet
from evoseek.storage.runs import with_digests
from evoseek.systems.zerosearch.collecting import SearchRecord, load_records, record_row
from evoseek.text.printable import for_example, say, say_left_out
from evoseek.types import Message
from evoseek.world.grammar import states
from evoseek.world.world import World, load_world

FORM = verdict_form("useful")
BATCH = 128  # searches that are labelled concurrently and recorded together

Label = Callable[[SearchRecord, str], Awaitable[bool]]
"""Whether a record's passages are useful. The text is a unique key for the call. Raises ToolError if there is no
label."""


def labelling(label: Label, *, max_failed: float = 1.0) -> BatchWork[SearchRecord, SearchRecord | ToolError]:
    """Records are labelled; those without a label are left out, never guessed. What is counted are the `useful` and the
    `noisy` ones."""

    async def one(record: SearchRecord, number: int) -> SearchRecord | ToolError:
        try:
            return replace(record, useful=await label(record, f"label/{number}"))
        except ToolError as error:
            return error

    def made_of(results: Sequence[SearchRecord | ToolError]) -> Made:
        labelled = [result for result in results if isinstance(result, SearchRecord)]
        counts = Counter("useful" if record.useful else "noisy" for record in labelled)
        failures = [str(result) for result in results if isinstance(result, ToolError)]
        return Made(map(record_row, labelled), counts, failures, len(results))

    return BatchWork(one, made_of, BATCH, "searches", max_failed)


def label_searches(context: Context, source: Path, out: Path, *, world: Path | None, console: Console) -> bool:
    """Label searches by the settings' judge, or by truth if a world's card is given, or resume that.

    Returns False if Ctrl-C ended it. Raises EvoseekError, also if there is not one label.
    """
    records = load_records(source, notify=lambda text: say(console, text))
    label, deciding = _make_label(context, world, records)
    begun_with = {"searches": sha256(source.read_bytes()).hexdigest(), **deciding}
    work = labelling(label, max_failed=context.settings.run.max_invalid)
    labelled = work.run(records, out, begun_with, console)
    if labelled is None:
        return False
    useful, noisy = (labelled.counts.get(name, 0) for name in ("useful", "noisy"))
    if not useful + noisy:
        raise EvoseekError(f"There is no label for any of {len(records)} searches. {for_example(labelled.failures)}")
    say_left_out(console, "searches have no label and are left out", labelled.failures)
    say(console, f"{useful + noisy} searches in {out}: {useful} useful, {noisy} noisy.")
    return True


def _make_label(
    context: Context, world: Path | None, records: Sequence[SearchRecord]
) -> tuple[Label, Mapping[str, object]]:
    if world is not None:
        label = TrueLabel(load_world(world))
        label.check(records)
        return label, {"world": world.read_text(encoding="utf-8")}
    settings = context.settings
    deciding = {"judge": {"model", "base_url", "max_tokens"}, "policy": {"prompts"}}
    judge = with_digests(settings.model_dump(include=deciding), inputs_of(settings))
    return JudgeLabel(*context.chat("judge")), {**judge, "seed": settings.run.seed}


class JudgeLabel:
    """A `Label` by a model, which is asked with simulator_label.jinja of a prompt set."""

    def __init__(self, chat: Chat, prompts: PromptSet) -> None:
        self._chat, self._template = chat, prompts["simulator_label"]

    async def __call__(self, record: SearchRecord, key: str) -> bool:
        values = {"question": record.question.text, "query": record.query, "passages": record.passages}
        messages = [Message("user", self._template.marked(**values))]
        return parse_verdict(await self._chat.chat(messages, key=key, form=FORM), ("useful", "noisy"))


class TrueLabel:
    """A `Label` by the world that the records come from: useful if every fact that the query asks for is stated.

    Of a query that has no answer there (a relation that its subject has not, an unknown name) the first page is useful:
    it is the best there is. From such examples a simulator learns that such queries lead nowhere. Without them it
    states the golden answer whatever subject a query names, and a policy soon queries for it at once, skipping the
    earlier links, which no real engine would answer.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    def check(self, records: Sequence[SearchRecord]) -> None:
        """Raise DataError if not one of the records' questions has its golden answer in this world: in the wrong world
        every search is noise."""
        if not any(self._is_true(record) for record in records):
            raise DataError(
                f"Not one question of the {len(records)} searches has its golden answer in the given world, so they "
                "were made in another one. Give the world.json that lies beside the index of these searches, or leave "
                "the world out and name a judge."
            )

    async def __call__(self, record: SearchRecord, key: str) -> bool:
        truth = self._world.oracle(record.query) or self._world.oracle(f"What is {record.query}?")
        if truth is None:
            return record.page == 1
        texts = [passage.text for passage in record.passages]
        return all(states(texts, fact.subject, fact.relation, [fact.object]) for fact in truth.chain)

    def _is_true(self, record: SearchRecord) -> bool:
        truth = self._world.oracle(record.question.text)
        return truth is not None and truth.answer in record.question.golden_answers
