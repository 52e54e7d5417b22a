"""Collecting demonstrations: a model answers questions by searching, and the right rollouts are kept."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from evoseek.agent.answer import chat_roller, uses_chat_model
from evoseek.assembly.context import Context
from evoseek.assembly.inputs import default_identity, evaluation_path, identity, read_questions
from evoseek.curation.batches import BatchProgress, BatchWork, Made
from evoseek.errors import ConfigError, EvoseekError
from evoseek.eval.draw import with_metric
from evoseek.protocols import RewardFn
from evoseek.questions.demonstrations import Demonstration, demonstration_row
from evoseek.rollout.roller import score
from evoseek.text.printable import say, say_left_out
from evoseek.training.demonstrations import demonstration_of
from evoseek.types import Invalid, Outcome, Question, Trajectory

BATCH = 64  # rollouts made concurrently and recorded together

Roll = Callable[[Question, str], Awaitable[Trajectory]]
"""One rollout of a question, by its id."""


@dataclass(frozen=True, slots=True)
class CollectionLimits:
    """The number of rollouts of each question, the lowest reward that is kept, and the most that are kept of a question
    (None: all), the shortest ones."""

    attempts: int = 1
    min_reward: float = 1.0
    per_question: int | None = None


def collecting(
    roll: Roll, reward: RewardFn, limits: CollectionLimits, *, max_failed: float = 0.2
) -> BatchWork[Question, list[tuple[Trajectory, Outcome]]]:
    """Return the work that rolls out questions and turns right rollouts into demonstrations. It counts the `kept`
    demonstrations, and the ends of rollouts: `right`, `wrong`, `malformed` or `failed`."""

    async def attempt(question: Question, number: int) -> tuple[Trajectory, Outcome]:
        trajectory = await roll(question, f"collect/{question.id}/{number}")
        return trajectory, await score(trajectory, reward)

    async def answer(question: Question, _: int) -> list[tuple[Trajectory, Outcome]]:
        return list(await asyncio.gather(*(attempt(question, number) for number in range(limits.attempts))))

    def made_of(answered: Sequence[list[tuple[Trajectory, Outcome]]]) -> Made:
        outcomes = [pair for attempts in answered for pair in attempts]
        failures = [one.detail or str(one.reason) for _, one in outcomes if isinstance(one, Invalid)]
        rows = [demonstration_row(kept) for attempts in answered for kept in _kept(attempts, limits)]
        ends = Counter(_end(*pair, limits.min_reward) for pair in outcomes)
        return Made(rows, {"kept": len(rows), **ends}, failures, len(outcomes))

    return BatchWork(answer, made_of, max(1, BATCH // limits.attempts), "questions", max_failed)


def collect_demonstrations(
    context: Context, out: Path, limits: CollectionLimits, *, limit: int | None, console: Console
) -> bool:
    """Let the model of [answerer], or else the policy, answer the questions of the settings, and keep right rollouts. A
    second call resumes.

    Returns False if Ctrl-C ended it. Raises ConfigError if `out` is another file or cannot be made; EvoseekError if no
    rollout was right or too many failed.
    """
    settings = context.settings
    questions = read_questions(evaluation_path(settings), setting="evaluation.path (--questions)")[:limit]
    name, roll = _model(context, limits)
    begun_with = {**identity(settings, context.checkpoint), **asdict(limits), "limit": limit}
    reward = with_metric(context.reward, context.metric)
    work = collecting(roll, reward, limits, max_failed=settings.run.max_invalid)
    collected = work.run(questions, out, begun_with, console, defaults=default_identity(settings))
    if collected is None:
        return False
    say(console, _report(collected, name, out))
    say_left_out(console, "rollouts failed and are in no share", collected.failures)
    if not collected.counts.get("kept"):
        raise EvoseekError(
            f"No demonstration was collected: no rollout of {name} was right and well-formed. Read some of its answers "
            "(evoseek ask), use another model, or lower --min-reward."
        )
    return True


def _model(context: Context, limits: CollectionLimits) -> tuple[str, Roll]:
    answerer = context.settings.answerer
    if not uses_chat_model(context.settings):
        context.report_models()
        return context.agent.policy.name, context.solver(context.searched).one
    if limits.attempts > 1 and answerer.temperature == 0:
        raise ConfigError(
            f"{limits.attempts} attempts were requested, but at answerer.temperature 0 they are all the same. "
            "Set answerer.temperature above 0 (--set answerer.temperature=0.7), or --attempts to 1."
        )
    model = chat_roller(context, context.searched)
    return model.chat.name, model.one


def _kept(attempts: Sequence[tuple[Trajectory, Outcome]], limits: CollectionLimits) -> list[Demonstration]:
    """Choose the demonstrations among the attempts at a question, equal turns once, the shortest first."""
    right = (demonstration_of(t) for t, outcome in attempts if _end(t, outcome, limits.min_reward) == "right")
    distinct = {demonstration.turns: demonstration for demonstration in right if demonstration is not None}
    return sorted(distinct.values(), key=_length)[: limits.per_question]


def _length(demonstration: Demonstration) -> tuple[int, int]:
    return len(demonstration.turns), sum(len(turn.thought) for turn in demonstration.turns)


def _end(trajectory: Trajectory, outcome: Outcome, min_reward: float) -> str:
    """Return how a rollout ended. A rollout with a turn that no demonstration can have is malformed, even with an
    answer."""
    if isinstance(outcome, Invalid):
        return "failed"
    if demonstration_of(trajectory) is None:
        return "malformed"
    return "right" if outcome.reward >= min_reward else "wrong"


def _report(collected: BatchProgress, name: str, out: Path) -> str:
    ends = {end: collected.counts.get(end, 0) for end in ("right", "wrong", "malformed")}
    valid = sum(ends.values())
    shares = (f"{count / max(1, valid):.1%} {end}" for end, count in ends.items())
    return (
        f"{name} answered {collected.done} questions in {valid} rollouts: {', '.join(shares)} (n={valid}). "
        f"{collected.counts.get('kept', 0)} demonstrations are in {out}."
    )
