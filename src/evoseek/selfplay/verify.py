"""Verification: does a reader without search find this answer to a question, and only this one?

    closed book     answered right without any passage: it could not teach searching             -> CLOSED_BOOK
    from passages   not answered right from the proposer's own passages, mixed with passages of other proposals
                    (Search Self-play, section on RAG verification)                               -> UNVERIFIED
    ambiguity       of several such readings, each with the passages in another order and other noise, another answer
                    comes out as often as the right one                                           -> AMBIGUOUS

Noise stops questions whose answer is only the best of the few candidates that the proposer happened to see. It consists
of single passages, as in the paper, or of all passages of other proposals, as in its published code. An unverified
question is rejected: a reader that gives no answer does not verify it. But a reading that failed outside the policies
decides nothing, and makes the whole episode Invalid.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from evoseek.protocols import RewardFn
from evoseek.questions.outcomes import Rejection
from evoseek.rollout.environments import ReaderEnv
from evoseek.rollout.roller import Roller, score
from evoseek.text.normalization import GRADED, RIGHT_FROM, comparable, exact_match
from evoseek.types import Invalid, Outcome, Passage, Question, Scored, Trajectory

if TYPE_CHECKING:
    from evoseek.selfplay.settings import GameSettings
    from evoseek.training.plan import TrainingContext

Reading = tuple[Trajectory, Outcome]


@dataclass(frozen=True, slots=True)
class Verification:
    """The reason for a question's rejection (None: accepted), or the failure that left it undecided; and the readings
    with their outcomes."""

    rejected: Rejection | None = None
    failure: Invalid | None = None
    readings: tuple[Reading, ...] = ()


@dataclass(frozen=True, slots=True)
class Verifier:
    """A verifier of questions by the active checks. `reader` returns a reader that sees these passages. An answer is
    right if its reward by `correct` is at least `RIGHT_FROM`. With `exact`, for a graded `correct`, an answer from
    passages must match exactly: a nearly right answer can reject a question, not verify one. `readings` is the number
    of readings of the passages (0: none); `noise_passages` counts units of `noise`: other proposals' single passages,
    or all passages of each."""

    reader: Callable[[Sequence[Passage]], Roller]
    correct: RewardFn
    seed: int
    readings: int = 1
    noise_passages: int = 4
    noise: Literal["passages", "trajectories"] = "passages"
    closed_book: bool = False
    exact: bool = False

    @classmethod
    def build(cls, settings: GameSettings, context: TrainingContext) -> Verifier | None:
        """Build a verifier with the context's agent as the reader, if the settings ask for any check."""
        own, agent = settings.verification, context.agent
        if not (own.readings or own.closed_book):
            return None
        renderer, limits = agent.renderer([]), replace(agent.limits, max_turns=1)

        def reader(passages: Sequence[Passage]) -> Roller:
            env = ReaderEnv(passages, agent.prompts, renderer.format)
            return agent.roller(env, renderer, limits=limits, temperature=0.0)

        return cls(
            reader,
            context.reward,
            settings.run.seed,
            own.readings,
            own.noise_passages,
            own.noise,
            own.closed_book,
            exact=context.metric in GRADED,
        )

    async def __call__(
        self, question: Question, evidence: Sequence[Passage], others: Sequence[Sequence[Passage]], key: str
    ) -> Verification:
        """Verify a question. Its proposer saw `evidence`, the batch's other proposers each saw one of `others`; `key`
        begins the readings' ids."""
        closed = [self._read(self.reader(()), question, f"{key}/closed-book")] if self.closed_book else []
        numbers = range(self.readings)
        opened = [self._read_mixed(question, evidence, others, f"{key}/reading-{number}") for number in numbers]
        readings = tuple(await asyncio.gather(*closed, *opened))
        failure = next((outcome for _, outcome in readings if isinstance(outcome, Invalid)), None)
        if failure is not None:
            return Verification(failure=failure, readings=readings)
        return Verification(self._rejection(readings[: len(closed)], readings[len(closed) :]), readings=readings)

    def _rejection(self, closed: Sequence[Reading], opened: Sequence[Reading]) -> Rejection | None:
        if any(map(self._is_near, closed)):
            return Rejection.CLOSED_BOOK
        if opened and not self._is_right(opened[0]):
            return Rejection.UNVERIFIED
        wrong = Counter(comparable(reading[0].answer or "") for reading in opened if not self._is_right(reading))
        most = max((count for answer, count in wrong.items() if answer), default=0)
        return Rejection.AMBIGUOUS if most and most >= sum(map(self._is_right, opened)) else None

    def _is_right(self, reading: Reading) -> bool:
        if not self.exact:
            return self._is_near(reading)
        read, _ = reading
        return read.answer is not None and exact_match(read.answer, read.question.golden_answers) == 1

    def _is_near(self, reading: Reading) -> bool:
        _, outcome = reading
        return isinstance(outcome, Scored) and outcome.reward >= RIGHT_FROM

    async def _read_mixed(
        self, question: Question, evidence: Sequence[Passage], others: Sequence[Sequence[Passage]], reading_id: str
    ) -> Reading:
        """Read the evidence among noise, in an order determined by the reading's id. Passages beyond the reader's room
        are left out, noise first."""
        rng = random.Random(f"{self.seed}/{reading_id}")
        units = self._units_of_noise({passage.id for passage in evidence}, others)
        drawn = rng.sample(units, min(self.noise_passages, len(units)))
        noise = {passage.id: passage for unit in drawn for passage in unit}
        wanted = [*evidence, *noise.values()]
        passages = wanted[:]
        rng.shuffle(passages)
        while not (reader := self.reader(passages)).has_room(question) and wanted:
            passages.remove(wanted.pop())
        return await self._read(reader, question, reading_id)

    def _units_of_noise(self, own: Set[str], others: Sequence[Sequence[Passage]]) -> list[Sequence[Passage]]:
        """Return the units of noise to draw from: single passages, or all passages of one other proposal, without the
        question's own."""
        unrelated = [[passage for passage in found if passage.id not in own] for found in others]
        if self.noise == "trajectories":
            return [found for found in unrelated if found]
        return [(passage,) for passage in {passage.id: passage for found in unrelated for passage in found}.values()]

    async def _read(self, reader: Roller, question: Question, reading_id: str) -> Reading:
        trajectory = await reader.one(question, reading_id)
        return trajectory, await score(trajectory, self.correct)
