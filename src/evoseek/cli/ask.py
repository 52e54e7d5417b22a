"""Asking a policy, or another model in its place, and scoring a policy."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from typing import cast

from rich.console import Console

from evoseek.cli.asked import asked_model, is_asked
from evoseek.cli.following import following
from evoseek.cli.settings import evaluation_path
from evoseek.errors import EvoseekError
from evoseek.eval.evaluate import Evaluation, Score
from evoseek.eval.evaluate import evaluate as evaluated
from evoseek.learner.checkpoint import Checkpoint
from evoseek.policy.vocabulary import vocabulary_notice
from evoseek.report.printable import say
from evoseek.report.tables import evaluation_table
from evoseek.rollout.agent import Agent
from evoseek.run import asked_engine, examined_by, held_out_temperature, opened
from evoseek.training.model_defaults import follow_endpoint
from evoseek.training.settings import TrainingSettings
from evoseek.training.sources import read_questions
from evoseek.types import Invalid, Passage, Question, Trajectory


def evaluate(
    settings: TrainingSettings,
    checkpoint: Checkpoint | None,
    *,
    search: bool,
    console: Console,
    as_json: bool = False,
) -> None:
    """Score a policy on the evaluation questions of the settings and print the table, or the scores as JSON.

    Raises EvoseekError if not one rollout was valid: there is then no score.
    """
    with opened(settings, checkpoint=checkpoint) as context:
        agent = context.agent
        _notify(agent, console)
        questions = read_questions(evaluation_path(settings), setting="evaluation.path")
        asked = questions[: settings.evaluation.limit]
        say(console, f"Asking {len(asked)} of {len(questions)} questions.")
        temperature = held_out_temperature(settings)
        roller = (examined_by(context) if search else agent.solver([])).at(temperature)
        evaluation = asyncio.run(evaluated(asked, roller=roller, metric=context.metric, reward=context.reward))
    _check_any_valid(evaluation)
    drawn = "greedy" if temperature == 0 else f"temperature {temperature:g}"
    title = f"{evaluation.metric}, {drawn}, search {'on' if search else 'off'}, 95 % intervals"
    if as_json:
        _print_json({"model": agent.policy.name, "search": search, **evaluation_json(evaluation)})
    else:
        console.print(evaluation_table(title, {agent.policy.name: evaluation}))


def ask(
    settings: TrainingSettings,
    checkpoint: Checkpoint | None,
    question: str,
    *,
    console: Console,
    as_json: bool = False,
) -> bool:
    """Ask the model of [asked], or else the policy, and show what the answer rests on, or what was written without one.

    Returns whether there is an answer. Raises EvoseekError if the rollout failed for reasons outside the model.
    """
    if is_asked(settings):
        with opened(follow_endpoint(settings)) as context:
            model = asked_model(context)
            say(console, f"Asking {model.chat.name}, as [asked] says, and not the policy.")
            trajectory = asyncio.run(model.ask(question))
    else:
        with opened(following(settings, console=Console(stderr=True)), checkpoint=checkpoint) as context:
            _notify(context.agent, console)
            if notice := vocabulary_notice(context.agent.policy, [question], what="the question"):
                say(console, notice)
            roller = context.solver(asked_engine(context)).at(0.0)
            trajectory = asyncio.run(roller.one(Question("ask", question, ()), "ask"))
    if as_json:
        _print_json(answer_json(trajectory))
    else:
        say(console, answer_text(trajectory))
    if trajectory.failure:
        raise EvoseekError(f"The question could not be answered: {trajectory.failure}")
    return trajectory.answer is not None


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
    """The answer, the searches, and of the passages found those that hold the answer (or none, which is said). Without
    an answer: what the model wrote in every turn."""
    answer = trajectory.answer
    ending = trajectory.failure or trajectory.stop_reason
    lines = [f"Answer: {answer}" if answer else f"No answer ({ending}).", "Searches:"]
    for number, result in enumerate(trajectory.tool_results, start=1):
        titles = ", ".join(passage.title for passage in result.passages) or "nothing found"
        asked = "; ".join(map(_argument, result.call.arguments.values()))
        lines.append(f"  {number}. {result.call.name}: {asked}  ->  {titles}")
    lines += [] if trajectory.tool_results else ["  none"]
    if answer is None:
        lines.append("What the model wrote:")
        lines += [f"  {number}. {action.text.strip()}" for number, action in enumerate(trajectory.actions, start=1)]
        return "\n".join(lines if trajectory.actions else [*lines, "  nothing"])
    lines.append("Passages that hold the answer:")
    lines += [f"  [{p.id}] {p.title}: {p.text}" for p in _support(trajectory)] or ["  none"]
    return "\n".join(lines)


def answer_json(trajectory: Trajectory) -> dict[str, object]:
    """The same as values for JSON; `answer` is null if there is none."""
    return {
        "question": trajectory.question.text,
        "answer": trajectory.answer,
        "stop_reason": trajectory.stop_reason.value,
        "failure": trajectory.failure,
        "searches": [
            {
                "tool": result.call.name,
                "arguments": dict(result.call.arguments),
                "found": [{"id": passage.id, "title": passage.title} for passage in result.passages],
            }
            for result in trajectory.tool_results
        ],
        "support": [{"id": p.id, "title": p.title, "text": p.text} for p in _support(trajectory)],
        "written": [action.text for action in trajectory.actions],
    }


def evaluation_json(evaluation: Evaluation) -> dict[str, object]:
    """The scores as values for JSON: over all questions, and by number of hops."""
    return {
        "metric": evaluation.metric,
        "temperature": evaluation.temperature,
        **_score_json(evaluation.score),
        "by_hops": {str(hops): _score_json(score) for hops, score in evaluation.by_hops().items()},
    }


def _score_json(score: Score) -> dict[str, object]:
    interval = [score.interval.low, score.interval.high]
    return {
        "mean": None if math.isnan(score.mean) else score.mean,
        "interval_95": interval,
        "n": score.n,
        "n_invalid": score.n_invalid,
    }


def _print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False))


def _support(trajectory: Trajectory) -> list[Passage]:
    """The passages found that hold the answer, each once."""
    answer = (trajectory.answer or "").casefold()
    passages = {p.id: p for result in trajectory.tool_results for p in result.passages}
    return [p for p in passages.values() if answer and answer in p.contents.casefold()]


def _argument(value: object) -> str:
    return ", ".join(map(str, cast("list[object]", value))) if isinstance(value, list) else str(value)
