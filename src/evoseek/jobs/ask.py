"""Asking a policy, or another model instead of it, and scoring a policy."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass

from rich.console import Console

from evoseek.env.context import EnvironmentContext
from evoseek.errors import ConfigError, EvoseekError
from evoseek.eval.evaluate import Evaluation
from evoseek.eval.evaluate import evaluate as evaluated
from evoseek.learner.checkpoint import Checkpoint
from evoseek.policy.vocabulary import vocabulary_notice
from evoseek.protocols import Chat, Environment
from evoseek.registry import build
from evoseek.report.answers import answer_json, answer_text, evaluation_json
from evoseek.report.printable import say
from evoseek.report.tables import evaluation_table
from evoseek.rollout.agent import Agent, limits_of
from evoseek.rollout.conversation import converse
from evoseek.rollout.limits import Limits
from evoseek.run import asked_engine, examined_by, opened
from evoseek.training.context import Context
from evoseek.training.model_defaults import follow_endpoint
from evoseek.training.settings import TrainingSettings
from evoseek.training.sources import evaluation_path, read_questions
from evoseek.types import Invalid, Question, Trajectory


@dataclass(frozen=True, slots=True)
class AskedModel:
    """A chat model with an environment."""

    chat: Chat
    env: Environment
    limits: Limits

    async def ask(self, text: str) -> Trajectory:
        """Answer one question."""
        question = Question("ask", text, ())
        return await converse(question, env=self.env, chat=self.chat, limits=self.limits, trajectory_id="ask")


def is_asked(settings: TrainingSettings) -> bool:
    """Whether the model of [asked] is to answer. Raises ConfigError if some of its settings are set, but no model."""
    asked = settings.asked
    if asked.model or asked.base_url:
        return True
    before = type(asked)()
    changed = [key for key in type(asked).model_fields if getattr(asked, key) != getattr(before, key)]
    if changed:
        raise ConfigError(
            f"asked.{changed[0]} is set, but neither asked.model nor asked.base_url: who is to be asked? Set "
            "asked.model (and asked.base_url, if it is behind an endpoint), or leave [asked] out to ask the policy."
        )
    return False


def asked_model(context: Context) -> AskedModel:
    """The model of [asked], which searches the web or the index. Raises ConfigError, PolicyError or
    SearchIndexError."""
    settings = context.settings
    chat, prompts = context.chat("asked")
    tools = context.tools(prompts, asked_engine(context))
    limits = limits_of(settings.rollout, prompts)
    env = build("environment", settings.environment, EnvironmentContext(tools, prompts, "tags", limits.calls))
    return AskedModel(chat, env, limits)


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
        temperature = settings.held_out_temperature
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
    """Ask the model of [asked], or else the policy, and print the answer's passages, or the model's output if there is
    no answer.

    Returns whether there is an answer. Raises EvoseekError if the rollout failed for reasons outside the model.
    """
    if is_asked(settings):
        with opened(follow_endpoint(settings)) as context:
            model = asked_model(context)
            say(console, f"Asking {model.chat.name}, as [asked] says, and not the policy.")
            trajectory = asyncio.run(model.ask(question))
    else:
        with opened(settings, checkpoint=checkpoint) as context:
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


def _print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False))
