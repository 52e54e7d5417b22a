"""Asking a policy and scoring it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from evoseek.assemble import Agent, open_index, read_questions
from evoseek.config import load_config
from evoseek.errors import ConfigError, RunError
from evoseek.learner.checkpoint import latest_checkpoint
from evoseek.report.printable import say
from evoseek.report.tables import evaluation_table
from evoseek.runs import RunDirectory
from evoseek.types import Passage, Trajectory


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
