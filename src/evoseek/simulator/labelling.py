"""Labelling an engine's results for a query as useful or noisy: by a judge, or in a generated world by truth.

Useful means: whoever reads the passages can answer the query (ZeroSearch, arXiv 2505.04588, section 3.2; there for each
document, here for those that were shown together, as a simulator will write them).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from rich.console import Console

from evoseek.corpus.resumable_jsonl import ResumableJsonl, open_growing_file
from evoseek.env.prompts import PromptSet
from evoseek.errors import DataError, EvoseekError, ToolError
from evoseek.protocols import Chat
from evoseek.report.printable import for_example, say, say_left_out
from evoseek.report.progress import STOPPING_AFTER_BATCH, CountProgress
from evoseek.reward.judge import parse_verdict, verdict_form
from evoseek.runs import with_digests
from evoseek.simulator.collecting import SearchRecord, load_records, record_row
from evoseek.statistics import surely_more
from evoseek.training.context import Context
from evoseek.training.inputs import inputs_of
from evoseek.training.interrupt import stop_on_interrupt
from evoseek.types import Message
from evoseek.world.grammar import states
from evoseek.world.world import World, load_world

FORM = verdict_form("useful")
BATCH = 128  # searches that are labelled concurrently and recorded together

Label = Callable[[SearchRecord, str], Awaitable[bool]]
"""Whether a record's passages are useful. The text is a unique key for the call. Raises ToolError if there is no
label."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """The progress of a file of labels: records that were examined, how many of them are useful and noisy, and why the
    others have no label (each reason, how often). These are left out of the file, never guessed."""

    done: int = 0
    useful: int = 0
    noisy: int = 0
    failures: Mapping[str, int] = field(default_factory=dict[str, int])


async def label_records(
    records: Sequence[SearchRecord],
    label: Label,
    file: ResumableJsonl,
    *,
    max_failed: float = 1.0,
    should_stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Labelled:
    """Label records in order, those of a batch concurrently, and append each batch to the file, which is resumed where
    it ends.

    `progress` is called with the number of finished records. Raises EvoseekError when of a batch more than the share
    `max_failed` surely gets no label; nothing of it is then written.
    """
    labelled = Labelled(**file.reached)
    done = labelled.done

    async def one(record: SearchRecord, number: int) -> SearchRecord | ToolError:
        nonlocal done
        try:
            return replace(record, useful=await label(record, f"label/{number}"))
        except ToolError as error:
            return error
        finally:
            done += 1
            progress(done, len(records))

    while labelled.done < len(records) and not should_stop():
        batch = records[labelled.done : labelled.done + BATCH]
        results = await asyncio.gather(*(one(record, n) for n, record in enumerate(batch, start=labelled.done + 1)))
        made = [result for result in results if isinstance(result, SearchRecord)]
        failed = Counter(str(result) for result in results if isinstance(result, ToolError))
        _check_failures(failed, len(batch), max_failed)
        useful = sum(record.useful is True for record in made)
        labelled = Labelled(
            labelled.done + len(batch),
            labelled.useful + useful,
            labelled.noisy + len(made) - useful,
            dict(Counter(labelled.failures) + failed),
        )
        file.append_batch(map(record_row, made), asdict(labelled))
    return labelled


def label_searches(context: Context, source: Path, out: Path, *, world: Path | None, console: Console) -> bool:
    """Label searches by the settings' judge, or by truth if a world's card is given, or resume that.

    Returns False if Ctrl-C ended it. Raises EvoseekError, also if there is not one label.
    """
    records = load_records(source, notify=lambda text: say(console, text))
    label, deciding = _make_label(context, world, records)
    begun_with = {"searches": sha256(source.read_bytes()).hexdigest(), **deciding}
    with (
        open_growing_file(out, begun_with) as file,
        stop_on_interrupt(lambda: say(console, STOPPING_AFTER_BATCH)) as interrupted,
        CountProgress(console, "labels") as progress,
    ):
        most = context.settings.run.max_invalid
        labelling = label_records(records, label, file, max_failed=most, should_stop=interrupted, progress=progress)
        labelled = asyncio.run(labelling)
    if labelled.done < len(records):
        say(console, f"Stopped after {labelled.done} of {len(records)} searches. The same command resumes from there.")
        return False
    count = labelled.useful + labelled.noisy
    if not count:
        raise EvoseekError(f"There is no label for any of {len(records)} searches. {for_example(labelled.failures)}")
    say_left_out(console, "searches have no label and are left out", labelled.failures)
    say(console, f"{count} searches in {out}: {labelled.useful} useful, {labelled.noisy} noisy.")
    return True


def _make_label(
    context: Context, world: Path | None, records: Sequence[SearchRecord]
) -> tuple[Label, Mapping[str, object]]:
    """Who labels, and which settings its labels follow from."""
    if world is not None:
        label = TrueLabel(load_world(world))
        label.check(records)
        return label, {"world": world.read_text(encoding="utf-8")}
    settings = context.settings
    deciding = {"judge": {"model", "base_url", "max_tokens"}, "policy": {"prompts"}}
    judge = with_digests(settings.model_dump(include=deciding), inputs_of(settings))
    return JudgeLabel(*context.chat("judge")), {**judge, "seed": settings.run.seed}


def _check_failures(failed: Counter[str], tried: int, max_failed: float) -> None:
    if surely_more(failed.total(), tried, max_failed):
        reason, many = failed.most_common(1)[0]
        raise EvoseekError(
            f"{failed.total()} of {tried} searches got no label, and nothing of this batch was written. The most "
            f"frequent reason ({many} times): {reason} Repair that and give the same command again: it resumes from "
            "there."
        )


class JudgeLabel:
    """A `Label` by a model, which is asked with simulator_label.jinja of a prompt set."""

    def __init__(self, chat: Chat, prompts: PromptSet) -> None:
        self._chat, self._template = chat, prompts["simulator_label"]

    async def __call__(self, record: SearchRecord, key: str) -> bool:
        """The model's label. Raises ToolError."""
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
        """The true label."""
        verdicts = [self._world.oracle(text) for text in (record.query, f"What is {record.query}?")]
        chain = next((verdict.chain for verdict in verdicts if verdict.answerable), ())
        if not chain:
            return record.page == 1
        texts = [passage.text for passage in record.passages]
        return all(states(texts, fact.subject, fact.relation, [fact.object]) for fact in chain)

    def _is_true(self, record: SearchRecord) -> bool:
        verdict = self._world.oracle(record.question.text)
        return verdict.answerable and verdict.answer in record.question.golden_answers
