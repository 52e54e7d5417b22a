"""Making a simulated search engine: collecting searches, labelling them, tuning a model on them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from rich.console import Console

from evoseek.cli.new_file import check_new
from evoseek.cli.propose import STOPPING as STOPPING_AFTER_BATCH
from evoseek.corpus.resumable_jsonl import open_growing_file
from evoseek.env.chats import make_chat
from evoseek.env.simulated import write_card
from evoseek.errors import EvoseekError
from evoseek.learner.checkpoint import Checkpoint
from evoseek.report.failures import for_example, say_left_out
from evoseek.report.printable import say
from evoseek.report.progress import STOPPING, CountProgress, LiveProgress
from evoseek.run import opened
from evoseek.runs import RunDirectory, with_digests
from evoseek.search.lexical import open_index
from evoseek.search.paging import PagingEngine
from evoseek.settings import lookup
from evoseek.simulator.begin import begin_tuning, tuning_data
from evoseek.simulator.collecting import KINDS as COLLECTED
from evoseek.simulator.collecting import collect
from evoseek.simulator.labelling import KINDS, JudgeLabel, Label, TrueLabel, label_records
from evoseek.simulator.records import SearchRecord, load_records
from evoseek.simulator.tuning import tune
from evoseek.systems.zerosearch import ZeroSearch
from evoseek.training.inputs import identity, inputs_of
from evoseek.training.interrupt import stop_on_interrupt
from evoseek.training.settings import TrainingSettings
from evoseek.training.sources import read_questions
from evoseek.training.supervised import SupervisedProgress
from evoseek.world.oracle import load_world

SAME_COMMAND = "The same command goes on from there."


def collect_searches(
    settings: TrainingSettings,
    checkpoint: Checkpoint | None,
    out: Path,
    *,
    pages: int,
    limit: int | None,
    console: Console,
) -> bool:
    """Roll a policy out on its settings' questions and write what its searches found, so many pages of each, or go on
    with that.

    Returns False if Ctrl-C ended it. Raises ConfigError if `out` is another file or cannot be made; EvoseekError if no
    search came of it.
    """
    engine = PagingEngine(open_index(settings.search.index, setting="search.index"), pages)
    questions = read_questions(lookup(settings, "questions.path") or "", setting="questions.path")[:limit]
    begun_with = {**identity(settings, checkpoint), "pages": pages, "limit": limit}
    with (
        opened(settings, checkpoint=checkpoint) as context,
        open_growing_file(out, begun_with, COLLECTED) as file,
        stop_on_interrupt(lambda: say(console, STOPPING_AFTER_BATCH)) as interrupted,
        CountProgress(console, "rollouts") as progress,
    ):
        collected = asyncio.run(
            collect(questions, context.solver(engine), engine, file, should_stop=interrupted, progress=progress)
        )
    if collected.done < len(questions):
        say(console, f"Stopped after {collected.done} of {len(questions)} rollouts. {SAME_COMMAND}")
        return False
    say_left_out(console, "rollouts failed and give no searches", collected.failures)
    if not collected.found:
        raise EvoseekError(
            f"Nothing was collected: in {len(questions)} rollouts of {context.agent.policy.name} there was no search "
            "that found anything. Take a policy that searches, and an index that holds what the questions are about."
        )
    found = ", ".join(f"{count} on page {page}" for page, count in sorted(collected.found.items()))
    say(
        console,
        f"{len(questions)} rollouts made {collected.queries} queries of the engine. Searches in {out}: {found}.",
    )
    return True


def label_searches(
    settings: TrainingSettings, source: Path, out: Path, *, world: Path | None, console: Console
) -> bool:
    """Label searches by the settings' judge, or by truth where a world's card is given, or go on with that.

    Returns False if Ctrl-C ended it. Raises EvoseekError, also if there is not one label.
    """
    records = load_records(source, notify=lambda text: say(console, text))
    label, deciding = _make_label(settings, world, records)
    begun_with = {"searches": sha256(source.read_bytes()).hexdigest(), **deciding}
    with (
        open_growing_file(out, begun_with, KINDS) as file,
        stop_on_interrupt(lambda: say(console, STOPPING_AFTER_BATCH)) as interrupted,
        CountProgress(console, "labels") as progress,
    ):
        most = settings.run.max_invalid
        labelling = label_records(records, label, file, max_failed=most, should_stop=interrupted, progress=progress)
        labelled = asyncio.run(labelling)
    if labelled.done < len(records):
        say(console, f"Stopped after {labelled.done} of {len(records)} searches. {SAME_COMMAND}")
        return False
    count = labelled.useful + labelled.noisy
    if not count:
        raise EvoseekError(f"There is no label for any of {len(records)} searches. {for_example(labelled.failures)}")
    say_left_out(console, "searches have no label and are left out", labelled.failures)
    say(console, f"{count} searches in {out}: {labelled.useful} useful, {labelled.noisy} noisy.")
    return True


def _make_label(
    settings: TrainingSettings, world: Path | None, records: Sequence[SearchRecord]
) -> tuple[Label, Mapping[str, object]]:
    """Who labels, and which settings its labels follow from."""
    if world is not None:
        label = TrueLabel(load_world(world))
        label.check(records)
        return label, {"world": world.read_text(encoding="utf-8")}
    chat, prompts = make_chat(settings.judge, section="judge", seed=settings.run.seed, device=settings.policy.device)
    deciding = {"model", "base_url", "prompts", "temperature", "max_tokens", "max_total_tokens"}
    judge = with_digests({"judge": settings.judge.model_dump(include=deciding)}, inputs_of(settings))
    return JudgeLabel(chat, prompts), {**judge, "seed": settings.run.seed}


def tune_simulator(
    settings: ZeroSearch.Settings,
    source: Path,
    directory: Path,
    work: Path,
    *,
    steps: int,
    tokens_per_step: int,
    console: Console,
) -> bool:
    """Tune the settings' policy on labelled searches, or go on with that, and write it as a plain model.

    Returns False if Ctrl-C ended it. Raises EvoseekError.
    """
    check_new(directory)
    records = load_records(source, notify=lambda text: say(console, text))
    with (
        RunDirectory(work).locked(),
        stop_on_interrupt(lambda: say(console, STOPPING)) as interrupted,
        LiveProgress(console, "step") as bar,
    ):
        run = begin_tuning(settings, source, work, steps=steps, tokens_per_step=tokens_per_step)
        data = tuning_data(settings, run.policy, records)
        for problem, count in data.left_out.items():
            say(console, f"Left out: {count} searches {problem}.")
        say(
            console, f"Tuning on {len(data.useful)} useful and {len(data.noisy)} noisy searches, after step {run.step}."
        )

        def watch(progress: SupervisedProgress) -> None:
            bar.show(progress.step, progress.steps, f"loss {progress.loss:.4f}")

        finished = tune(
            run,
            data,
            directory,
            seed=settings.run.seed,
            steps=steps,
            tokens_per_step=tokens_per_step,
            progress=watch,
            should_stop=interrupted,
        )
    if finished:
        write_card(directory, top_k=settings.search.top_k, max_words=settings.simulator.max_words)
    say(console, f"Written to {directory}." if finished else "Stopped. The same command goes on from there.")
    return finished
