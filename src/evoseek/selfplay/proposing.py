"""Questions from a corpus: proposed, filtered, verified, and tried by a solver."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from rich.console import Console

from evoseek.assembly.inputs import default_identity, identity
from evoseek.assembly.settings import TrainingSettings
from evoseek.config.registry import find
from evoseek.errors import ConfigError, EvoseekError
from evoseek.eval.statistics import surely_more
from evoseek.protocols import PassageStore
from evoseek.questions.outcomes import VALID, Rejection, failed, outcomes_table, outcomes_text
from evoseek.questions.questions import load_questions, parse_question, question_row
from evoseek.selfplay.episode import SelfPlay
from evoseek.selfplay.settings import GameSettings
from evoseek.storage.checkpoints import Checkpoint
from evoseek.storage.jsonl import ResumableJsonl, open_growing_file
from evoseek.text.duplicates import NearDuplicates
from evoseek.text.normalization import RIGHT_FROM
from evoseek.text.printable import say
from evoseek.text.progress import STOPPING_AFTER_BATCH, LiveProgress
from evoseek.training.interrupt import stop_on_interrupt
from evoseek.training.plan import TrainingContext
from evoseek.training.rollout_metrics import describe_failures
from evoseek.types import Episode, Invalid, Question, Scored

PROPOSALS_PER_QUESTION = 20  # maximum number per requested question, unless given


def propose(
    settings: TrainingSettings,
    checkpoint: Checkpoint | None,
    out: Path,
    *,
    count: int,
    max_proposals: int | None,
    console: Console,
) -> bool:
    """Write `count` questions to `out`, or resume a file begun with the same settings.

    Ends earlier after `max_proposals` proposals (in whole batches; 20 a question if None), and says so. Returns False
    if Ctrl-C ended it. Raises EvoseekError, also if no proposal became a question.
    """
    most = PROPOSALS_PER_QUESTION * count if max_proposals is None else max_proposals
    with TrainingContext(settings, checkpoint=checkpoint, notify=lambda text: say(console, text)) as context:
        writing = Writing.of(context)
        with (
            open_growing_file(out, identity(writing.settings, checkpoint), default_identity(writing.settings)) as file,
            stop_on_interrupt(lambda: say(console, STOPPING_AFTER_BATCH)) as interrupted,
            LiveProgress(console, "questions") as bar,
        ):

            def progress(written: int, counts: Mapping[str, int]) -> None:
                bar.show(written, count, outcomes_text(counts))

            written = asyncio.run(writing.fill(file, count, most, should_stop=interrupted, progress=progress))
    counts = Reached.of(file.reached).counts
    if counts:
        console.print(outcomes_table(counts))
    if interrupted() and written < count:
        say(console, f"Stopped with {written} of {count} questions in {out}. The same command resumes from there.")
        return False
    if not written:
        raise EvoseekError(_none_valid(counts))
    say(console, f"{written} questions in {out}." if written >= count else _too_few(written, count, counts, out))
    return True


@dataclass(frozen=True, slots=True)
class Reached:
    """The progress of a file: the batches made, their counts, and the last batch's unused questions, which come first
    when more are requested."""

    batches: int = 0
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    spare: tuple[Question, ...] = ()

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Reached:
        spare = (parse_question(row, "") for row in state.get("spare", ()))
        return cls(state.get("batches", 0), state.get("counts", {}), tuple(spare))

    def state(self) -> dict[str, object]:
        return {"batches": self.batches, "counts": self.counts, "spare": list(map(question_row, self.spare))}


@dataclass(frozen=True, slots=True)
class Writing:
    """A writer that plays batches of episodes and writes their questions. `tasks(batch)` gives the tasks of batch 1, 2,
    ...

    `settings` determine everything.
    """

    settings: GameSettings
    play: SelfPlay
    tasks: Callable[[int], Sequence[Question]]
    corpus: PassageStore
    max_invalid: float

    @classmethod
    def of(cls, context: TrainingContext) -> Writing:
        """Build it from the settings, with the policies of a run or else one policy in both roles.

        Raises EvoseekError, also for a system without a proposer.
        """
        settings = context.settings
        system = find("system", settings.run.system)
        if not isinstance(settings, GameSettings) or not hasattr(system, "proposing"):
            raise ConfigError(
                f"{settings.run.system} has no proposer. Give --system dr-zero or ssp, or a run of one of them; or "
                "export the policy (`evoseek export`) and give it as --model."
            )
        game, tasks = system.proposing(settings, context)
        if notice := game.solver.template_notice():
            context.notify(notice)
        per_batch = settings.selfplay.proposals_per_step
        return cls(
            settings=settings,
            play=replace(game.play, label=None),  # pass rates refer to the written answer
            tasks=lambda batch: tasks((batch - 1) * per_batch, per_batch, f"{batch:06d}"),
            corpus=context.corpus,
            max_invalid=settings.run.max_invalid,
        )

    async def fill(
        self,
        file: ResumableJsonl,
        count: int,
        max_proposals: int,
        *,
        should_stop: Callable[[], bool],
        progress: Callable[[int, Mapping[str, int]], None],
    ) -> int:
        """Write until the file holds `count` questions or `max_proposals` were made; return the number of questions.

        On resuming, an unwritten batch is repeated with the same result; no other state is kept.
        """
        earlier, reached = load_questions(file.path) if file.size else [], Reached.of(file.reached)
        written = len(earlier)
        seen = NearDuplicates(self.play.near_duplicates or 1.0)
        for question in (*earlier, *reached.spare):
            seen.is_new(question.text)
        while written < count and not should_stop():
            if not reached.spare and sum(reached.counts.values()) >= max_proposals:
                break
            if len(reached.spare) < count - written and sum(reached.counts.values()) < max_proposals:
                reached = await self._batch(reached, seen)
            ready, spare = reached.spare[: count - written], reached.spare[count - written :]
            reached = replace(reached, spare=spare)
            file.append_batch(map(question_row, ready), reached.state())
            written += len(ready)
            progress(written, reached.counts)
        return written

    async def _batch(self, reached: Reached, seen: NearDuplicates) -> Reached:
        number = reached.batches + 1
        episodes = await self.play(self.tasks(number), f"batch-{number:06d}")
        self._check_failures(episodes)
        counts, found = Counter(reached.counts), list[Question]()
        for episode in episodes:
            outcome = _outcome(episode, seen)
            counts[outcome] += 1
            if outcome == VALID:
                found.append(self._described(episode))
        return Reached(number, counts, (*reached.spare, *found))

    def _described(self, episode: Episode) -> Question:
        question = cast(Question, episode.question)
        outcomes = episode.solvers.outcomes if episode.solvers else ()
        values = [outcome.parts[self.play.metric] for outcome in outcomes if isinstance(outcome, Scored)]
        right = [value >= RIGHT_FROM for value in values]
        passages = map(self.corpus.get, cast("Sequence[str]", question.metadata["evidence"]))
        evidence = [{"id": passage.id, "title": passage.title, "text": passage.text} for passage in passages]
        measured = {"pass_rate": sum(right) / len(right), "attempts": len(right), "evidence": evidence}
        return replace(question, metadata={**question.metadata, **measured})

    def _check_failures(self, episodes: Sequence[Episode]) -> None:
        failures = [episode.outcome for episode in episodes if isinstance(episode.outcome, Invalid)]
        if surely_more(len(failures), len(episodes), self.max_invalid):
            raise EvoseekError(
                f"{describe_failures(failures, len(episodes), 'proposals')} Nothing of this batch was written. Repair "
                "what failed, and run the same command again."
            )


def _outcome(episode: Episode, seen: NearDuplicates) -> str:
    if isinstance(episode.outcome, Invalid):
        return failed(episode.outcome.reason)
    if episode.question is None:
        return str(episode.rejected)
    return VALID if seen.is_new(episode.question.text) else Rejection.DUPLICATE.value


def _none_valid(counts: Mapping[str, int]) -> str:
    reason, many = Counter(counts).most_common(1)[0]
    return (
        f"No question was written: none of {sum(counts.values())} proposals was valid; the most frequent reason "
        f"({many}) is {reason}. Give a model whose proposals are valid more often, loosen what rejects most "
        "(filters.*, verification.*), or allow more proposals with --max-proposals N."
    )


def _too_few(written: int, count: int, counts: Mapping[str, int], out: Path) -> str:
    return (
        f"Only {written} of {count} questions are in {out}: the limit of proposals was reached ({sum(counts.values())} "
        "were made). To resume, run the same command with a higher --max-proposals; the table says what rejects "
        "most."
    )
