"""Episodes of self-play: propose -> filter -> verify -> solve n times -> score, each in its own coroutine.

An episode waits for others only to detect duplicates and to draw noise for verification among the proposals of the
whole batch. A failure outside the policies (a tool, the sampler, a reader) makes an episode Invalid for proposer and
solver; it never becomes a reward of 0, nor the reward of an unsolved question.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from evoseek.errors import ConfigError
from evoseek.protocols import GroupLabel, RewardFn
from evoseek.questions.outcomes import Rejection
from evoseek.rollout.roller import Roller, as_failed, nothing_found
from evoseek.selfplay.filters import (
    RuleFilter,
    proposed_question,
    retrieved_passages,
    seen_passages,
    supporting_passages,
)
from evoseek.selfplay.proposer_reward import ProposerReward
from evoseek.selfplay.verify import Verification, Verifier
from evoseek.text.duplicates import NearDuplicates
from evoseek.text.normalization import METRICS, comparable
from evoseek.types import Episode, Invalid, Outcome, Passage, Question, Scored, Trajectory, TrajectoryGroup

if TYPE_CHECKING:  # these import torch, which the settings of a system do not need
    from evoseek.assembly.agent import Agent
    from evoseek.learner.distributed import Ranks
    from evoseek.rollout.environments import AnswerProposerEnv, PassageProposerEnv
    from evoseek.selfplay.settings import GameSettings
    from evoseek.training.plan import TrainingContext


Failed = tuple[tuple[Trajectory, Invalid], ...]


@dataclass(slots=True)
class EpisodeSeconds:
    """Seconds per stage, from the previous stage's end until the batch's last episode has finished this one, summed
    over batches."""

    propose: float = 0.0
    verify: float = 0.0
    solve: float = 0.0

    def timings(self) -> dict[str, float]:
        seconds = {"propose": self.propose, "verify": self.verify, "solve": self.solve}
        return {f"selfplay/{stage}_seconds": value for stage, value in seconds.items()}


@dataclass(frozen=True, slots=True)
class SelfPlay:
    """Batches of episodes. `reward` is the solver's reward, `proposer_reward` the proposer's.

    `metric` names the part of `reward` that scores an answer. `label` may rescore a complete group of the solver.
    `evidence` selects the passages of a proposal for a reader. `near_duplicates` is the minimum similarity at which a
    question duplicates an earlier one of its batch, of another task (0 accepts all).

    With several `ranks` each plays a share of the episodes and gets all proposals, so an episode waits until every rank
    has proposed. In the end all have all episodes.
    """

    proposer: Roller
    solver: Roller
    rules: RuleFilter
    reward: RewardFn
    proposer_reward: ProposerReward
    attempts: int
    metric: str = "exact_match"
    verifier: Verifier | None = None
    evidence: Callable[[Trajectory], Sequence[Passage]] = seen_passages
    near_duplicates: float = 1.0
    label: GroupLabel | None = None
    refills: int = 2
    ranks: Ranks | None = None

    @classmethod
    def build(
        cls,
        settings: GameSettings,
        context: TrainingContext,
        proposer: Agent,
        env: type[AnswerProposerEnv | PassageProposerEnv],
    ) -> SelfPlay:
        """Build episodes of the proposer (environment `env`) and the context's agent, who search the context's engine.
        Raises ConfigError for your own reward if it cannot compare answers with a majority."""
        metric, own, filters = context.metric, settings.proposer, settings.filters
        by_majority = settings.selfplay.label == "majority"
        if by_majority and metric not in METRICS:
            raise ConfigError(
                "selfplay.label is majority, but the reward is your own object, which cannot compare votes. Instead "
                f"set reward.name to one of {', '.join(METRICS)}, or selfplay.label to "
                "proposer."
            )
        limits = replace(proposer.limits, max_turns=own.max_turns, max_tokens_per_turn=own.max_tokens_per_turn)
        tools = context.tools(proposer.prompts, context.engine)
        return cls(
            proposer=proposer.proposer(tools, env, limits=limits, temperature=own.temperature),
            solver=context.solver(context.engine),
            rules=RuleFilter(filters.min_words, filters.min_searches, filters.rules, context.reviewed),
            reward=context.training_reward,
            proposer_reward=ProposerReward(own.difficulty, own.format_weight, own.rejected_reward, success=metric),
            attempts=own.attempts,
            metric=metric,
            verifier=Verifier.build(settings, context),
            evidence=supporting_passages if settings.verification.passages == "supporting" else seen_passages,
            near_duplicates=filters.near_duplicates,
            label=relabel if by_majority else None,
            ranks=context.ranks,
        )

    async def __call__(
        self,
        tasks: Sequence[Question],
        key: str,
        *,
        solve: bool = True,
        stages: EpisodeSeconds | None = None,
        earlier: Sequence[Episode] = (),
    ) -> list[Episode]:
        """Play one episode per task, returned in the tasks' order. `key` and the tasks' ids determine ids and random
        streams.

        Without `solve` questions are only proposed, filtered and verified. The proposals of `earlier` episodes, of
        other tasks, count as the same batch.
        """
        numbered = list(enumerate(tasks))
        own = numbered if self.ranks is None else self.ranks.share(numbered)
        batch = _Batch(self, len(own), solve, [episode.proposer for episode in earlier])
        batch.passed("propose")
        started = batch.ended["propose"]
        if not own:
            batch.complete()
        episodes = await _all(self._episode(task, index, key, batch) for index, task in own)
        if self.ranks is not None:
            episodes = self.ranks.join(episodes, list[Episode])
        if stages is not None:
            stages.propose += batch.ended["propose"] - started
            stages.verify += batch.ended["verify"] - batch.ended["propose"]
            stages.solve += batch.ended["solve"] - batch.ended["verify"]
        return _failed_if_nothing_found(episodes)

    async def _episode(self, task: Question, index: int, key: str, batch: _Batch) -> Episode:
        proposal, failed = await self._propose(task, f"{key}/proposals/{task.id}")
        batch.put(index, proposal)
        if proposal.stop_reason.is_failure:
            return Episode(proposal, Invalid(proposal.stop_reason, proposal.failure or ""), replaced=failed)
        rejected = self.rules(proposal)
        if rejected is None and not self.solver.can_ask(proposed_question(proposal, supporting_passages(proposal))):
            rejected = Rejection.TOO_LONG
        if rejected is None and self.near_duplicates and await batch.is_duplicate(index):
            rejected = Rejection.DUPLICATE
        if rejected is not None:
            return self._rejected(proposal, rejected, Verification(), failed)
        question = proposed_question(proposal, supporting_passages(proposal))
        verification = await self._verify(question, proposal, index, key, batch)
        batch.passed("verify")
        if verification.failure is not None:
            return Episode(proposal, verification.failure, checks=verification.readings, replaced=failed)
        if verification.rejected is not None:
            return self._rejected(proposal, verification.rejected, verification, failed)
        solvers = await self.solve(question, key) if batch.solve else None
        batch.passed("solve")
        outcome = self.proposer_reward(proposal, rejected=None, solvers=solvers)
        return Episode(proposal, outcome, question, None, verification.readings, solvers, failed)

    async def solve(self, question: Question, key: str) -> TrajectoryGroup:
        group = await self.solver.group(question, size=self.attempts, reward=self.reward, key=f"{key}/{question.id}")
        return await self.label(group, self.reward) if self.label else group

    async def solve_all(self, questions: Sequence[Question], keys: Sequence[str]) -> list[TrajectoryGroup]:
        pairs = list(zip(questions, keys, strict=True))
        own = pairs if self.ranks is None else self.ranks.share(pairs)
        groups = await asyncio.gather(*(self.solve(question, key) for question, key in own))
        return groups if self.ranks is None else self.ranks.join(groups, list[TrajectoryGroup])

    async def _propose(self, task: Question, trajectory_id: str) -> tuple[Trajectory, Failed]:
        """Roll out a proposal; after a failure try again with new random numbers, at most `refills` times."""
        failed: list[tuple[Trajectory, Invalid]] = []
        proposal = await self.proposer.one(task, trajectory_id)
        while proposal.stop_reason.is_failure and len(failed) < self.refills:
            failed.append((proposal, Invalid(proposal.stop_reason, proposal.failure or "")))
            proposal = await self.proposer.one(task, f"{trajectory_id}r{len(failed)}")
        return proposal, tuple(failed)

    async def _verify(
        self, question: Question, proposal: Trajectory, index: int, key: str, batch: _Batch
    ) -> Verification:
        if self.verifier is None:
            return Verification()
        others = await batch.passages_of_others(index) if self.verifier.noise_passages else []
        return await self.verifier(question, self.evidence(proposal), others, f"{key}/{question.id}")

    def _rejected(self, proposal: Trajectory, reason: Rejection, verification: Verification, failed: Failed) -> Episode:
        outcome: Outcome = self.proposer_reward(proposal, rejected=reason, solvers=None)
        return Episode(proposal, outcome, None, reason, verification.readings, None, failed)


def _failed_if_nothing_found(episodes: list[Episode]) -> list[Episode]:
    """Return the episodes unchanged; or all Invalid if the engine found nothing for any proposer, or for any rollout.
    If it found nothing only for solvers, it was lost after the questions were written: they stay, unsolved."""
    proposers = [episode.proposer for episode in episodes]
    solvers = [rollout for episode in episodes if episode.solvers for rollout in episode.solvers.trajectories]
    if failure := nothing_found(proposers) or nothing_found(proposers + solvers):
        failed = [replace(episode, outcome=failure, question=None, rejected=None) for episode in episodes]
    elif failure := nothing_found(solvers):
        failed = [replace(episode, outcome=failure) if episode.solvers else episode for episode in episodes]
    else:
        return episodes
    return [replace(episode, solvers=episode.solvers and as_failed(episode.solvers, failure)) for episode in failed]


def _text(proposal: Trajectory) -> str:
    return proposal.actions[-1].question or ""


@dataclass(slots=True)
class _Batch:
    """The shared state of a batch's episodes; `size` run in this process."""

    play: SelfPlay
    size: int
    solve: bool
    earlier: Sequence[Trajectory] = ()
    ended: dict[str, float] = field(default_factory=dict[str, float])
    _proposals: dict[int, Trajectory] = field(default_factory=dict[int, Trajectory])
    _complete: asyncio.Event = field(default_factory=asyncio.Event)
    _duplicates: set[int] | None = None

    def put(self, index: int, proposal: Trajectory) -> None:
        self._proposals[index] = proposal
        self.passed("propose")
        if len(self._proposals) == self.size:
            self.complete()

    def complete(self) -> None:
        """Exchange proposals with the other ranks, once this rank has all of its own."""
        ranks = self.play.ranks
        if ranks is not None:
            own = [proposal for _, proposal in sorted(self._proposals.items())]
            self._proposals = dict(enumerate(ranks.join(own, list[Trajectory])))
        self._complete.set()

    def passed(self, stage: str) -> None:
        """Record that an episode has finished a stage; later stages do not end earlier."""
        stages = ("propose", "verify", "solve")
        self.ended |= dict.fromkeys(stages[stages.index(stage) :], perf_counter())

    async def is_duplicate(self, index: int) -> bool:
        """Return whether an earlier proposal of the batch, in the tasks' order, asks the same. Rejected proposals do
        not count, nor proposals of the same task: these are compared, and equal ones must be worth the same."""
        await self._complete.wait()
        if self._duplicates is None:
            self._duplicates = self._find_duplicates()
        return index in self._duplicates

    def _find_duplicates(self) -> set[int]:
        texts: dict[object, dict[int, str]] = {}
        seen, found = NearDuplicates(self.play.near_duplicates), set[int]()
        for proposal in filter(self._asks, self.earlier):
            seen.is_new(_text(proposal))
        for number, proposal in sorted(self._proposals.items()):
            if self._asks(proposal):
                texts.setdefault(self._task(number), {})[number] = _text(proposal)
        for own in texts.values():
            found |= {number for number, text in own.items() if not seen.is_new(text, remember=False)}
            for text in own.values():
                seen.is_new(text)
        return found

    def _asks(self, proposal: Trajectory) -> bool:
        return not proposal.stop_reason.is_failure and self.play.rules(proposal) is None

    async def passages_of_others(self, index: int) -> list[tuple[Passage, ...]]:
        """Return the passages found by each proposer of the batch's other tasks, in their order. Proposers of the same
        task are excluded: they may have found the passages that this question is about."""
        await self._complete.wait()
        others = (
            proposal for number, proposal in sorted(self._proposals.items()) if self._task(number) != self._task(index)
        )
        return [retrieved_passages(proposal) for proposal in (*self.earlier, *others)]

    def _task(self, index: int) -> object:
        """Return the task id that proposals of nested sampling share."""
        task = self._proposals[index].question.task
        return task.id if task and task.id else index


async def _all(episodes: Any) -> list[Episode]:
    """Await all; if one raises, cancel the others, which may be waiting for it."""
    coroutines: list[Coroutine[Any, Any, Episode]] = list(episodes)
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def majority_answer(answers: Iterable[str | None]) -> str | None:
    """Return the most frequent answer, compared in normal form and given as first written; of equals the first.

    None if no answer has a normal form that is not empty.
    """
    votes: Counter[str] = Counter()
    written: dict[str, str] = {}
    for answer in answers:
        if answer is not None and (normal := comparable(answer)):
            votes[normal] += 1
            written.setdefault(normal, answer)
    return written[votes.most_common(1)[0][0]] if votes else None


async def relabel(group: TrajectoryGroup, reward: RewardFn) -> TrajectoryGroup:
    """Score a group's valid members by `reward` against their majority answer; all are wrong if there is none.

    This is the control without the proposer's answer (as in R-Zero, arXiv 2508.05004, and SQLM, arXiv 2508.03682). If
    the solver is usually wrong, its errors are reinforced.

    Everything in a reward that depends on the right answer, such as the penalty for a wrong one, uses the majority's.
    The part `label/agrees` is 1 if the question accepts the majority answer. Trajectories, with the proposer's answer,
    and Invalid outcomes do not change.
    """
    pairs = list(zip(group.trajectories, group.outcomes, strict=True))
    label = majority_answer(trajectory.answer for trajectory, outcome in pairs if isinstance(outcome, Scored))

    async def scored(trajectory: Trajectory, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Scored):
            return outcome
        question, agrees = trajectory.question, False
        if label is not None:  # without one, no answer has words, which is wrong by any label
            agrees = comparable(label) in map(comparable, question.golden_answers)
            outcome = await reward(replace(trajectory, question=replace(question, golden_answers=(label,))))
        if isinstance(outcome, Scored):
            outcome = Scored(outcome.reward, {**outcome.parts, "label/agrees": float(agrees)})
        return outcome

    outcomes = await asyncio.gather(*(scored(trajectory, outcome) for trajectory, outcome in pairs))
    return replace(group, outcomes=tuple(outcomes))
