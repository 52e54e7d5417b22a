"""Making a simulated search engine: collecting searches, labelling them, tuning a model on them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from rich.console import Console

from evoseek.assemble.agent import Agent
from evoseek.assemble.chat import make_chat
from evoseek.assemble.inputs import identity, inputs_of
from evoseek.assemble.simulation import write_card
from evoseek.assemble.simulator_tuning import begin_tuning, tuning_data
from evoseek.assemble.sources import open_index, read_questions
from evoseek.commands.new_file import check_new
from evoseek.commands.propose import STOPPING as STOPPING_AFTER_BATCH
from evoseek.config import Config
from evoseek.corpus.resumable_jsonl import open_growing_file
from evoseek.errors import EvoseekError
from evoseek.learner.checkpoint import Checkpoint
from evoseek.report.failures import for_example, say_left_out
from evoseek.report.printable import say
from evoseek.report.progress import STOPPING, CountProgress, LiveProgress
from evoseek.runs import RunDirectory, with_digests
from evoseek.search.paging import PagingEngine
from evoseek.simulator.collecting import KINDS as COLLECTED
from evoseek.simulator.collecting import collect
from evoseek.simulator.labelling import KINDS, JudgeLabel, Label, TrueLabel, label_records
from evoseek.simulator.records import SearchRecord, load_records
from evoseek.simulator.tuning import tune
from evoseek.training.interrupt import stop_on_interrupt
from evoseek.training.supervised import SupervisedProgress
from evoseek.world.oracle import load_world

SAME_COMMAND = "The same command goes on from there."


def collect_searches(
    config: Config, checkpoint: Checkpoint | None, out: Path, *, pages: int, limit: int | None, console: Console
) -> bool:
    """Roll a policy out on its config's questions and write what its searches found, so many pages of each, or go on
    with that.

    Returns False if Ctrl-C ended it. Raises ConfigError if `out` is another file or cannot be made; EvoseekError if no
    search came of it.
    """
    agent = Agent.load(config, checkpoint=checkpoint)
    engine = PagingEngine(open_index(config.search.index, setting="search.index"), pages)
    questions = read_questions(config.questions.path, setting="questions.path")[:limit]
    solver = agent.solver(engine)
    player = agent.player(solver.env, solver.renderer)
    settings = {**identity(config, checkpoint), "pages": pages, "limit": limit}
    with (
        open_growing_file(out, settings, COLLECTED) as file,
        stop_on_interrupt(lambda: say(console, STOPPING_AFTER_BATCH)) as interrupted,
        CountProgress(console, "rollouts") as progress,
    ):
        collected = asyncio.run(collect(questions, player, engine, file, should_stop=interrupted, progress=progress))
    if collected.done < len(questions):
        say(console, f"Stopped after {collected.done} of {len(questions)} rollouts. {SAME_COMMAND}")
        return False
    say_left_out(console, "rollouts failed and give no searches", collected.failures)
    if not collected.found:
        raise EvoseekError(
            f"Nothing was collected: in {len(questions)} rollouts of {agent.policy.name} there was no search that "
            "found anything. Take a policy that searches, and an index that holds what the questions are about."
        )
    found = ", ".join(f"{count} on page {page}" for page, count in sorted(collected.found.items()))
    say(
        console,
        f"{len(questions)} rollouts made {collected.queries} queries of the engine. Searches in {out}: {found}.",
    )
    return True


def label_searches(config: Config, source: Path, out: Path, *, world: Path | None, console: Console) -> bool:
    """Label searches by the config's judge, or by truth where a world's card is given, or go on with that.

    Returns False if Ctrl-C ended it. Raises EvoseekError, also if there is not one label.
    """
    records = load_records(source, notify=lambda text: say(console, text))
    label, settings = _make_label(config, world, records)
    settings = {"searches": sha256(source.read_bytes()).hexdigest(), **settings}
    with (
        open_growing_file(out, settings, KINDS) as file,
        stop_on_interrupt(lambda: say(console, STOPPING_AFTER_BATCH)) as interrupted,
        CountProgress(console, "labels") as progress,
    ):
        most = config.run.max_invalid
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
    config: Config, world: Path | None, records: Sequence[SearchRecord]
) -> tuple[Label, Mapping[str, object]]:
    """Who labels, and which settings its labels follow from."""
    if world is not None:
        label = TrueLabel(load_world(world))
        label.check(records)
        return label, {"world": world.read_text(encoding="utf-8")}
    chat, prompts = make_chat(config.judge, section="judge", seed=config.run.seed, device=config.policy.device)
    deciding = {"model", "base_url", "prompts", "temperature", "max_tokens", "max_total_tokens"}
    judge = with_digests({"judge": config.judge.model_dump(include=deciding)}, inputs_of(config))
    return JudgeLabel(chat, prompts), {**judge, "seed": config.run.seed}


def tune_simulator(
    config: Config, source: Path, directory: Path, work: Path, *, steps: int, tokens_per_step: int, console: Console
) -> bool:
    """Tune the config's policy on labelled searches, or go on with that, and write it as a plain model.

    Returns False if Ctrl-C ended it. Raises EvoseekError.
    """
    check_new(directory)
    records = load_records(source, notify=lambda text: say(console, text))
    with (
        RunDirectory(work).locked(),
        stop_on_interrupt(lambda: say(console, STOPPING)) as interrupted,
        LiveProgress(console, "step") as bar,
    ):
        run = begin_tuning(config, source, work, steps=steps, tokens_per_step=tokens_per_step)
        data = tuning_data(config, run.policy, records)
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
            seed=config.run.seed,
            steps=steps,
            tokens_per_step=tokens_per_step,
            progress=watch,
            should_stop=interrupted,
        )
    if finished:
        write_card(config, directory)
    say(console, f"Written to {directory}." if finished else "Stopped. The same command goes on from there.")
    return finished
