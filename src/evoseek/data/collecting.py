"""Collecting demonstrations: a model answers questions by searching, and the rollouts that were right are kept."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console

from evoseek.answer import chat_roller, uses_chat_model
from evoseek.corpus.demonstrations import Demonstration, demonstration_row
from evoseek.corpus.resumable_jsonl import ResumableJsonl, open_growing_file
from evoseek.errors import ConfigError, EvoseekError
from evoseek.eval.evaluate import examining
from evoseek.protocols import RewardFn
from evoseek.report.printable import for_example, say, say_left_out
from evoseek.report.progress import STOPPING_AFTER_BATCH, CountProgress
from evoseek.rollout.roller import score
from evoseek.statistics import surely_more
from evoseek.training.context import Context
from evoseek.training.demonstrations import demonstration_of
from evoseek.training.inputs import evaluation_path, identity, read_questions
from evoseek.training.interrupt import stop_on_interrupt
from evoseek.types import Invalid, Outcome, Question, Trajectory

BATCH = 64  # rollouts that are made concurrently and recorded together

Roll = Callable[[Question, str], Awaitable[Trajectory]]
"""One rollout of a question, by its id."""


@dataclass(frozen=True, slots=True)
class CollectionLimits:
    """How many rollouts each question has, from which reward on they are kept, and at most how many of a question
    (None: all), the shortest ones."""

    attempts: int = 1
    min_reward: float = 1.0
    per_question: int | None = None


@dataclass(frozen=True, slots=True)
class DemonstrationProgress:
    """The progress of a file: questions done, demonstrations kept, how rollouts ended (`right`, `wrong`, `malformed`,
    `failed`), and why some failed (each reason, how often)."""

    done: int = 0
    kept: int = 0
    ends: Mapping[str, int] = field(default_factory=dict[str, int])
    failures: Mapping[str, int] = field(default_factory=dict[str, int])


async def collect(
    questions: Sequence[Question],
    roll: Roll,
    reward: RewardFn,
    limits: CollectionLimits,
    file: ResumableJsonl,
    *,
    max_invalid: float = 0.2,
    should_stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> DemonstrationProgress:
    """Roll questions out, those of a batch concurrently, and append demonstrations of what was right to the file, which
    is resumed where it ends.

    A rollout that failed is none. Raises EvoseekError if more than the share `max_invalid` of a batch failed: nothing
    of it is written, so that its questions are asked again when the file is resumed.
    """
    collected, size = DemonstrationProgress(**file.reached), max(1, BATCH // limits.attempts)

    async def attempt(question: Question, number: int) -> tuple[Trajectory, Outcome]:
        trajectory = await roll(question, f"collect/{question.id}/{number}")
        return trajectory, await score(trajectory, reward)

    async def answer(question: Question) -> list[tuple[Trajectory, Outcome]]:
        return list(await asyncio.gather(*(attempt(question, number) for number in range(limits.attempts))))

    while collected.done < len(questions) and not should_stop():
        batch = questions[collected.done : collected.done + size]
        answered = await asyncio.gather(*map(answer, batch))
        outcomes = [pair for attempts in answered for pair in attempts]
        failures = Counter(
            outcome.detail or str(outcome.reason) for _, outcome in outcomes if isinstance(outcome, Invalid)
        )
        if surely_more(failures.total(), len(outcomes), max_invalid):
            raise EvoseekError(
                f"{failures.total()} of {len(outcomes)} rollouts failed after {collected.done} questions. "
                f"{for_example(failures)} Nothing of them was written. Repair what failed and give the same command "
                "again: it resumes from there."
            )
        ends = Counter(_end(*pair, limits.min_reward) for pair in outcomes)
        rows = [demonstration_row(kept) for attempts in answered for kept in _kept(attempts, limits)]
        collected = DemonstrationProgress(
            collected.done + len(batch),
            collected.kept + len(rows),
            dict(Counter(collected.ends) + ends),
            dict(Counter(collected.failures) + failures),
        )
        file.append_batch(rows, asdict(collected))
        progress(collected.done, len(questions))
    return collected


def collect_demonstrations(
    context: Context, out: Path, limits: CollectionLimits, *, limit: int | None, console: Console
) -> bool:
    """Let the model of [answerer], or else the policy, answer the questions of the settings, and keep what was right,
    or resume that.

    Returns False if Ctrl-C ended it. Raises ConfigError if `out` is another file or cannot be made; EvoseekError if
    nothing was right or too much failed.
    """
    settings = context.settings
    questions = read_questions(evaluation_path(settings), setting="evaluation.path (--questions)")[:limit]
    name, roll = _model(context, limits)
    begun_with = {**identity(settings, context.checkpoint), **asdict(limits), "limit": limit}
    with (
        open_growing_file(out, begun_with) as file,
        stop_on_interrupt(lambda: say(console, STOPPING_AFTER_BATCH)) as interrupted,
        CountProgress(console, "questions") as progress,
    ):
        collected = asyncio.run(
            collect(
                questions,
                roll,
                examining(context.reward, context.metric),
                limits,
                file,
                max_invalid=settings.run.max_invalid,
                should_stop=interrupted,
                progress=progress,
            )
        )
    say(console, _report(collected, name, out))
    say_left_out(console, "rollouts failed and are in no share", collected.failures)
    if collected.done < len(questions):
        say(
            console,
            f"Stopped after {collected.done} of {len(questions)} questions. The same command resumes from there.",
        )
        return False
    if not collected.kept:
        raise EvoseekError(
            f"No demonstration was collected: none of the rollouts of {name} was right and in the format. Read some of "
            "its answers (evoseek ask), take another model, or lower --min-reward."
        )
    return True


def _model(context: Context, limits: CollectionLimits) -> tuple[str, Roll]:
    """The name of the model that answers, and how it does."""
    answerer = context.settings.answerer
    if not uses_chat_model(context.settings):
        context.report_models()
        return context.agent.policy.name, context.solver(context.searched).one
    if limits.attempts > 1 and answerer.temperature == 0:
        raise ConfigError(
            f"{limits.attempts} attempts were asked for, but answerer.temperature is 0, at which they are all alike. "
            "Set answerer.temperature above 0 (--set answerer.temperature=0.7), or --attempts to 1."
        )
    model = chat_roller(context, context.searched)
    return model.chat.name, model.one


def _kept(attempts: Sequence[tuple[Trajectory, Outcome]], limits: CollectionLimits) -> list[Demonstration]:
    """The demonstrations that the attempts at a question give, the same turns once, and the shortest first."""
    right = (demonstration_of(t) for t, outcome in attempts if _end(t, outcome, limits.min_reward) == "right")
    distinct = {demonstration.turns: demonstration for demonstration in right if demonstration is not None}
    return sorted(distinct.values(), key=_length)[: limits.per_question]


def _length(demonstration: Demonstration) -> tuple[int, int]:
    return len(demonstration.turns), sum(len(turn.thought) for turn in demonstration.turns)


def _end(trajectory: Trajectory, outcome: Outcome, min_reward: float) -> str:
    """How a rollout ended. One with an answer but a turn that no demonstration can have is malformed as well."""
    if isinstance(outcome, Invalid):
        return "failed"
    if demonstration_of(trajectory) is None:
        return "malformed"
    return "right" if outcome.reward >= min_reward else "wrong"


def _report(collected: DemonstrationProgress, name: str, out: Path) -> str:
    valid = sum(count for end, count in collected.ends.items() if end != "failed")
    shares = (f"{collected.ends.get(end, 0) / max(1, valid):.1%} {end}" for end in ("right", "wrong", "malformed"))
    return (
        f"{name} answered {collected.done} questions in {valid} rollouts: {', '.join(shares)} (n={valid}). "
        f"{collected.kept} demonstrations are in {out}."
    )
