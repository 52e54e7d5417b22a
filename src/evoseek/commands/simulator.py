"""Making a simulated search engine: collecting searches, labelling them, tuning a model on them, checking it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter
from rich.console import Console

from evoseek.assemble.agent import Agent, open_index, read_questions
from evoseek.assemble.chat import make_chat
from evoseek.assemble.simulator_tuning import begin_tuning, tuning_data
from evoseek.commands.export import check_new
from evoseek.config import Config
from evoseek.corpus.oracle import load_world
from evoseek.env.prompts import PromptSet
from evoseek.env.simulator import SimulatorPrompts
from evoseek.errors import EvoseekError
from evoseek.eval.simulator_check import GoldenTruth, SimulatorCheck, WorldTruth, check_simulator
from evoseek.files import write_atomic
from evoseek.protocols import Chat
from evoseek.report.printable import say
from evoseek.report.progress import STOPPING, CountProgress, LiveProgress
from evoseek.report.simulator import obedience_table, style_table
from evoseek.runs import RunDirectory
from evoseek.search.paging import PagingEngine
from evoseek.systems.interrupt import stop_on_interrupt
from evoseek.systems.search_records import load_records, save_records
from evoseek.systems.simulator_collecting import collect
from evoseek.systems.simulator_labelling import JudgeLabel, Label, TrueLabel, label_records
from evoseek.systems.simulator_tuning import tune
from evoseek.systems.supervised import SupervisedProgress


def collect_searches(agent: Agent, out: Path, *, pages: int, limit: int | None, console: Console) -> None:
    """Roll an agent out on its config's questions and write what its searches found, so many pages of each.

    Raises EvoseekError if no search came of it.
    """
    config = agent.config
    engine = PagingEngine(open_index(config.search.index, setting="search.index"), pages)
    questions = read_questions(config.questions.path, setting="questions.path")[:limit]
    solver = agent.solver(engine)
    player = agent.player(solver.env, solver.renderer)
    with CountProgress(console, "rollouts") as progress:
        collection = asyncio.run(collect(questions, player, engine, progress=progress))
    _say_left_out(console, "rollouts failed and give no searches", collection.failures)
    if not collection.records:
        raise EvoseekError(
            f"Nothing was collected: in {collection.rollouts} rollouts of {agent.policy.name} there was no search that "
            "found anything. Take a policy that searches, and an index that holds what the questions are about."
        )
    save_records(out, collection.records)
    by_page = Counter(record.page for record in collection.records)
    found = ", ".join(f"{count} on page {page}" for page, count in sorted(by_page.items()))
    say(
        console,
        f"{collection.rollouts} rollouts made {engine.queries} queries of the engine. Searches in {out}: {found}.",
    )


def make_label(config: Config, world: Path | None) -> Label:
    """The config's judge, or truth where a world's card is given. Raises ConfigError, PolicyError or DataError."""
    if world is not None:
        return TrueLabel(load_world(world))
    chat, prompts = make_chat(config.judge, section="judge", seed=config.run.seed, device=config.policy.device)
    return JudgeLabel(chat, prompts)


def label_searches(label: Label, source: Path, out: Path, *, console: Console) -> None:
    """Label searches. Raises EvoseekError if there is not one label."""
    records = load_records(source)
    with CountProgress(console, "labels") as progress:
        labelled = asyncio.run(label_records(records, label, progress=progress))
    if not labelled.records:
        raise EvoseekError(f"There is no label for any of {len(records)} searches. {_for_example(labelled.failures)}")
    _say_left_out(console, "searches have no label and are left out", labelled.failures)
    save_records(out, labelled.records)
    useful = sum(record.useful is True for record in labelled.records)
    say(console, f"{len(labelled.records)} searches in {out}: {useful} useful, {len(labelled.records) - useful} noisy.")


def tune_simulator(
    config: Config, source: Path, directory: Path, work: Path, *, steps: int, tokens_per_step: int, console: Console
) -> bool:
    """Tune the config's policy on labelled searches, or go on with that, and write it as a plain model.

    Returns False if Ctrl-C ended it. Raises EvoseekError.
    """
    check_new(directory)
    records = load_records(source)
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
    say(console, f"Written to {directory}." if finished else "Stopped. The same command goes on from there.")
    return finished


def check(
    chat: Chat,
    prompts: PromptSet,
    config: Config,
    source: Path,
    *,
    world: Path | None,
    count: int,
    output: Path | None,
    console: Console,
) -> None:
    """Check a simulator on held-out searches; print what came out, and write it as JSON if asked to.

    Raises EvoseekError if not one reply could be read.
    """
    records = load_records(source)
    truth = GoldenTruth() if world is None else WorldTruth(load_world(world))
    with CountProgress(console, "replies") as progress:
        checked = asyncio.run(
            check_simulator(
                chat,
                SimulatorPrompts(prompts),
                records,
                truth,
                count=count,
                documents=config.search.top_k,
                max_words=config.simulator.max_words,
                seed=config.run.seed,
                progress=progress,
            )
        )
    if all(score.mean == 0 for score in checked.readable.values()):
        raise EvoseekError(f"Not one reply of {chat.name} could be read. {_for_example(checked.problems)}")
    if checked.unasked:
        say(console, f"{checked.unasked} queries were left out: nothing can be said of their answers.")
    console.print(obedience_table(checked))
    console.print(style_table(checked))
    _say_left_out(console, "replies could not be read", checked.problems)
    if output is not None:
        write_atomic(output, _as_json(config, source, chat.name, checked))


def _as_json(config: Config, source: Path, model: str, checked: SimulatorCheck) -> str:
    settings = {
        "simulator": model,
        "searches": str(source),
        "documents": config.search.top_k,
        "max_words": config.simulator.max_words,
        "temperature": config.simulator.temperature,
        "seed": config.run.seed,
    }
    measured = json.loads(TypeAdapter(SimulatorCheck).dump_json(checked))  # nan becomes null
    return json.dumps({**settings, **measured}, indent=1) + "\n"


def _say_left_out(console: Console, what: str, reasons: Sequence[str]) -> None:
    if reasons:
        say(console, f"{len(reasons)} {what}. {_for_example(reasons)}")


def _for_example(reasons: Sequence[str]) -> str:
    reason, count = Counter(reasons).most_common(1)[0]
    return f"The most frequent reason ({count} times): {reason}" if count > 1 else f"For example: {reason}"
