"""Asking a policy, or another model in its place, and scoring a policy."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import cast

from rich.console import Console

from evoseek.assemble.agent import Agent, Solver, evaluation_temperature, open_index, read_questions
from evoseek.assemble.asked import asked_model
from evoseek.assemble.model_defaults import follow_endpoint
from evoseek.assemble.reward import make_reward
from evoseek.assemble.web import Web, web_of
from evoseek.commands.following import following
from evoseek.commands.settings import load_settings
from evoseek.config import Config
from evoseek.errors import ConfigError, EvoseekError
from evoseek.eval.evaluate import Evaluation
from evoseek.learner.checkpoint import Checkpoint
from evoseek.policy.vocabulary import vocabulary_notice
from evoseek.report.printable import say
from evoseek.report.tables import evaluation_table
from evoseek.types import Invalid, Passage, Trajectory


def load_agent(
    run_dir: Path | None, config_files: Sequence[Path], *, options: Mapping[str, object], sets: Sequence[str]
) -> Agent:
    """The agent of a run's last checkpoint (in self-play with two policies: the solver), or the one that config files
    and options describe. Raises as `load_settings` does, and PolicyError.
    """
    config, checkpoint = load_settings(run_dir, config_files, options=options, sets=sets)
    return Agent.load(following(config, console=Console(stderr=True)), checkpoint=checkpoint)


def evaluate(agent: Agent, *, search: bool, console: Console) -> None:
    """Score an agent on its config's evaluation questions and print the table.

    Raises EvoseekError if not one rollout was valid: there is then no score.
    """
    config = agent.config
    _notify(agent, console)
    questions = read_questions(config.evaluation.path or config.questions.path, setting="evaluation.path")
    asked = questions[: config.evaluation.limit]
    say(console, f"Asking {len(asked)} of {len(questions)} questions.")
    temperature = evaluation_temperature(config)
    index = config.evaluation.index or config.search.index
    with web_of(config) if search else nullcontext() as web:
        if web is not None:
            solver = web.solver(agent)
        else:
            solver = agent.solver(open_index(index, setting="evaluation.index") if search else None)
        evaluation = asyncio.run(solver.evaluate(asked, temperature=temperature, reward=make_reward(config)))
    _check_any_valid(evaluation)
    drawn = "greedy" if temperature == 0 else f"temperature {temperature:g}"
    title = f"{config.reward.metric}, {drawn}, search {'on' if search else 'off'}, 95 % intervals"
    console.print(evaluation_table(title, {agent.policy.name: evaluation}))


def ask(
    config: Config, checkpoint: Checkpoint | None, question: str, *, console: Console, model: str | None = None
) -> None:
    """Ask the model of [asked], or else the policy, and show what the answer rests on. `model` is that of --model.

    Raises ConfigError if nothing is asked, or two are named who could be; EvoseekError if the rollout failed for
    reasons outside the model.
    """
    if not question.strip():
        raise ConfigError("The question is empty. Give the question's text.")
    if model is not None and (other := config.asked.model or config.asked.base_url):
        raise ConfigError(
            f"--model names the policy {model}, and [asked] the model {other}: who is to be asked? Leave out --model, "
            "or asked.model and asked.base_url."
        )
    with web_of(config) as web:
        if asked := asked_model(follow_endpoint(config), web):
            say(console, f"Asking {asked.chat.name}, as [asked] says, and not the policy.")
        else:
            followed = following(config, console=Console(stderr=True))
            asked = _policy(Agent.load(followed, checkpoint=checkpoint), web, console, question)
        trajectory = asyncio.run(asked.ask(question))
    say(console, answer_text(trajectory))
    if trajectory.failure:
        raise EvoseekError(f"The question could not be answered: {trajectory.failure}")


def _policy(agent: Agent, web: Web | None, console: Console, question: str) -> Solver:
    _notify(agent, console)
    if notice := vocabulary_notice(agent.policy, [question], what="the question"):
        say(console, notice)
    if web is not None:
        return web.solver(agent)
    return agent.solver(open_index(agent.config.search.index, setting="--index"))


def _notify(agent: Agent, console: Console) -> None:
    if notice := agent.template_notice():
        say(console, notice)


def _check_any_valid(evaluation: Evaluation) -> None:
    details = Counter(
        result.outcome.detail or str(result.outcome.reason)
        for result in evaluation.results
        if isinstance(result.outcome, Invalid)
    )
    if details.total() == len(evaluation.results):
        detail, count = details.most_common(1)[0]
        raise EvoseekError(
            f"There is no score: all {len(evaluation.results)} rollouts were invalid. The most frequent reason "
            f"({count} rollouts): {detail} Repair what failed and give the same command again."
        )


def answer_text(trajectory: Trajectory) -> str:
    """The answer, the searches, and of the passages found those that hold the answer (or none, which is said)."""
    answer = trajectory.answer
    ending = trajectory.failure or trajectory.stop_reason
    lines = [f"Answer: {answer}" if answer else f"No answer ({ending}).", "Searches:"]
    support: dict[str, Passage] = {}
    for number, result in enumerate(trajectory.tool_results, start=1):
        titles = ", ".join(passage.title for passage in result.passages) or "nothing found"
        asked = "; ".join(map(_argument, result.call.arguments.values()))
        lines.append(f"  {number}. {result.call.name}: {asked}  ->  {titles}")
        for passage in result.passages:
            if answer and answer.casefold() in passage.contents.casefold():
                support[passage.id] = passage
    lines += [] if trajectory.tool_results else ["  none"]
    lines.append("Passages that hold the answer:")
    lines += [f"  [{passage.id}] {passage.title}: {passage.text}" for passage in support.values()] or ["  none"]
    return "\n".join(lines)


def _argument(value: object) -> str:
    return ", ".join(map(str, cast("list[object]", value))) if isinstance(value, list) else str(value)
