"""What the commands do, with a console to print on. `evoseek.cli` reads their options from the command line."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from rich.console import Console
from transformers.utils import logging as transformers_logging

from evoseek.assemble import Agent, open_index, read_questions, search_r1_loop
from evoseek.config import Config, load_config
from evoseek.corpus.documents import read_corpus
from evoseek.corpus.passages import split_document
from evoseek.corpus.read_report import ReadReport
from evoseek.errors import ConfigError, RunError
from evoseek.learner.checkpoint import latest_checkpoint
from evoseek.report.plots import plot_curves
from evoseek.report.printable import printable
from evoseek.report.progress import TrainingProgress
from evoseek.report.tables import evaluation_table
from evoseek.runs import RunDirectory
from evoseek.search.analyser import Analyser
from evoseek.search.lexical import LexicalIndex
from evoseek.systems.interrupt import stop_on_interrupt
from evoseek.systems.tiny import VARIANTS, BuildProgress, TinyRecipe, build
from evoseek.types import Passage, Trajectory

SYSTEMS = ("search-r1",)

transformers_logging.disable_progress_bar()  # bars about a few files of weights; downloads keep theirs


def build_index(
    corpus: Path, directory: Path, *, stemming: Literal["none", "english"], max_words: int, console: Console
) -> None:
    """Read a corpus, cut it into passages, index them, and say what was skipped."""
    report = ReadReport()

    def passages() -> Iterator[Passage]:
        for document in read_corpus(corpus, report=report):
            yield from split_document(document, max_words=max_words)

    index = LexicalIndex.build(directory, passages(), analyser=Analyser(stemming))
    say(console, report.summary())
    if report.skipped_count:
        say(console, report.table())
    say(console, f"{len(index):,} passages indexed in {directory}")


def search_index(directory: Path, query: str, *, k: int, console: Console) -> None:
    """Print the best passages."""
    found = asyncio.run(LexicalIndex.open(directory).search([query], k))[0]
    for rank, passage in enumerate(found, start=1):
        say(console, f"{rank}. {passage.title}  [{passage.id}, score {passage.score or 0.0:.3f}]\n   {passage.text}")
    if not found:
        say(console, "Nothing was found.")


def train(
    system: str,
    config: Config,
    run: RunDirectory,
    *,
    console: Console,
    max_seconds: float = math.inf,
) -> bool:
    """Train, or go on with a run whose lock the caller holds, for about `max_seconds` of steps at most.

    Returns False if Ctrl-C ended it early. Raises ConfigError for an unknown system and whatever training raises.
    """
    if system not in SYSTEMS:
        raise ConfigError(f"There is no system {system!r}. The systems are: {', '.join(SYSTEMS)}.")

    with (
        stop_on_interrupt(lambda: _announce_stop(console)) as interrupted,
        TrainingProgress(console, max_seconds=max_seconds) as progress,
    ):
        loop = search_r1_loop(config, run)
        if loop.start:
            say(console, f"Resuming {run.path} after step {loop.start}.")
        loop.progress = progress
        loop.should_stop = interrupted
        loop.max_seconds = max_seconds
        step = asyncio.run(loop.run())
    if interrupted():
        say(console, f"Stopped after step {step}. The same command goes on from there.")
        return False
    say(console, f"Trained {run.path} to step {step}.")
    return True


def build_tiny(directory: Path, work: Path, *, variant: str, steps: int | None, seed: int, console: Console) -> bool:
    """Build the tiny policy, or go on with a build. Returns False if Ctrl-C ended it early.

    Raises ConfigError for an unknown variant.
    """
    if variant not in VARIANTS:
        raise ConfigError(f"There is no variant {variant!r} of the tiny policy. There are: {', '.join(VARIANTS)}.")
    recipe = TinyRecipe(seed=seed, mixture=VARIANTS[variant])
    if steps is not None:
        recipe = replace(recipe, steps=steps)

    def watch(progress: BuildProgress) -> None:
        say(console, f"step {progress.step}/{progress.steps}  loss {progress.loss:.4f}")

    with RunDirectory(work).locked(), stop_on_interrupt(lambda: _announce_stop(console)) as interrupted:
        finished = build(directory, work, recipe, progress=watch, should_stop=interrupted)
    say(console, f"Written to {directory}." if finished else "Stopped. The same command goes on from there.")
    return finished


def draw(run: RunDirectory, console: Console) -> None:
    """Draw the run's curves; without matplotlib, say how to get it."""
    try:
        say(console, f"Curves: {plot_curves(run)}")
    except ConfigError as error:
        say(console, str(error))


def load_agent(
    run_dir: Path | None, config_file: Path | None, *, options: Mapping[str, object], sets: Sequence[str]
) -> Agent:
    """The agent of a run's last checkpoint, or the one that a config file and options describe.

    Raises ConfigError if a run and a model of its own are both given, RunError if the directory holds no run or no
    checkpoint yet.
    """
    if run_dir is None:
        return Agent.load(load_config(config_file, options=options, sets=sets))
    if config_file or options.get("policy.model"):
        raise ConfigError(
            "--run-dir brings its own model and config. Give either --run-dir, or --model and --config, not both."
        )
    run = RunDirectory(run_dir)
    checkpoint = latest_checkpoint(run_dir)
    if checkpoint is None or not run.config.is_file():
        raise RunError(
            f"{run_dir} holds no checkpoint to use. Give the directory of a run that `evoseek train` or `evoseek demo` "
            "made and that has saved one (every run.checkpoint_every steps), or give --model instead."
        )
    return Agent.load(load_config(run.config, options=options, sets=sets), checkpoint=checkpoint)


def evaluate(agent: Agent, *, temperature: float, search: bool, limit: int | None, console: Console) -> None:
    """Score an agent on its config's evaluation questions and print the table."""
    config = agent.config
    questions = read_questions(config.evaluation.path or config.questions.path, setting="evaluation.path")[:limit]
    index = config.evaluation.index or config.search.index
    solver = agent.solver(open_index(index, setting="evaluation.index") if search else None)
    evaluation = asyncio.run(solver.evaluate(questions, temperature=temperature))
    drawn = "greedy" if temperature == 0 else f"temperature {temperature:g}"
    title = f"{config.reward.metric}, {drawn}, search {'on' if search else 'off'}, 95 % intervals"
    console.print(evaluation_table(title, {agent.policy.name: evaluation}))


def ask(agent: Agent, question: str, *, console: Console) -> None:
    """Answer a question and show what the answer rests on."""
    solver = agent.solver(open_index(agent.config.search.index, setting="--index"))
    say(console, answer_text(asyncio.run(solver.ask(question))))


def answer_text(trajectory: Trajectory) -> str:
    """The answer, the searches, and of the passages found those that hold the answer (or none, which is said)."""
    answer = trajectory.answer
    ending = trajectory.failure or trajectory.stop_reason
    lines = [f"Answer: {answer}" if answer else f"No answer ({ending}).", "Searches:"]
    support: dict[str, Passage] = {}
    for number, result in enumerate(trajectory.tool_results, start=1):
        titles = ", ".join(passage.title for passage in result.passages) or "nothing found"
        lines.append(f"  {number}. {result.call.arguments.get('query', '')}  ->  {titles}")
        for passage in result.passages:
            if answer and answer.casefold() in passage.contents.casefold():
                support[passage.id] = passage
    lines += [] if trajectory.tool_results else ["  none"]
    lines.append("Passages that hold the answer:")
    lines += [f"  [{passage.id}] {passage.title}: {passage.text}" for passage in support.values()] or ["  none"]
    return "\n".join(lines)


def say(console: Console, text: str) -> None:
    """Print text as it is, whatever it holds."""
    console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


def _announce_stop(console: Console) -> None:
    say(console, "Stopping after this step; its checkpoint is saved. Press Ctrl-C again to abort at once.")
