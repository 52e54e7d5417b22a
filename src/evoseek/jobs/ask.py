"""Asking a policy, or another model instead of it, one question."""

from __future__ import annotations

import asyncio
import json

from rich.console import Console

from evoseek.errors import EvoseekError
from evoseek.jobs.answering import Answerer
from evoseek.jobs.chat_roller import uses_chat_model
from evoseek.learner.checkpoint import Checkpoint
from evoseek.policy.vocabulary import vocabulary_notice
from evoseek.report.printable import say
from evoseek.rollout.agent import Agent
from evoseek.training.context import Context
from evoseek.training.model_defaults import follow_endpoint
from evoseek.training.settings import TrainingSettings


def ask(
    settings: TrainingSettings,
    checkpoint: Checkpoint | None,
    question: str,
    *,
    console: Console,
    as_json: bool = False,
) -> bool:
    """Ask the model of [answerer], or else the policy, and print the answer with the passages that support it, or the
    model's output if there is no answer.

    Returns whether there is an answer (one that is refused is none). Raises EvoseekError if the rollout failed for
    reasons outside the model.
    """
    settings = follow_endpoint(settings) if uses_chat_model(settings) else settings
    with Context(settings, checkpoint=None if uses_chat_model(settings) else checkpoint) as context:
        answerer = Answerer.of(context)
        introduce(context, answerer, console, question)
        answered = asyncio.run(answerer.answer(question, "ask"))
    if as_json:
        _print_json(answered.json)
    else:
        say(console, answered.text)
    if failure := answered.trajectory.failure:
        raise EvoseekError(f"The question could not be answered: {failure}")
    return answered.answer is not None


def introduce(context: Context, answerer: Answerer, console: Console, question: str = "") -> None:
    """Print who answers, or what the policy's chat template can do; warn of a question that the policy cannot read."""
    if uses_chat_model(context.settings):
        say(console, f"Asking {answerer.name}, as [answerer] says, and not the policy.")
        return
    tell_about_template(context.agent, console)
    if question and (notice := vocabulary_notice(context.agent.policy, [question], what="the question")):
        say(console, notice)


def tell_about_template(agent: Agent, console: Console) -> None:
    """Print what the model's chat template can do."""
    if notice := agent.template_notice():
        say(console, notice)


def _print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False))
