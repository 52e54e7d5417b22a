"""Episodes of self-play: propose -> filter -> verify -> solve n times -> score, each episode a separate coroutine.

An episode waits for others only where it must: duplicates are detected, and noise for verification is drawn, among the
proposals of the whole batch. A failure outside the policies (a tool, the sampler, a reader) makes an episode Invalid,
for the proposer as for the solver; it is never a reward of 0, nor the reward of a question nobody could solve.
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
    """Seconds per stage: from the end of the previous stage to the time when the last episode of a batch finished this
    one, summed over batches."""

    propose: float = 0.0
    verify: float = 0.0
    solve: float = 0.0

    def timings(self) -> dict[str, float]:
        seconds = {"propose": self.propose, "verify": self.verify, "solve": self.solve}
        return {f"selfplay/{stage}_seconds": value for stage, value in seconds.items()}


@dataclass(frozen=True, slots=True)
class SelfPlay:
    """Plays batches of episodes. `reward` is the solver's reward, `proposer_reward` the proposer's.

    `metric` names the part of `reward` that measures how right an answer is. `label` may rescore a complete group of
    the solver. `evidence` selects the passages of a proposal that a reader is shown; `near_duplicates` is the likeness
    beyond which a question is a duplicate of an earlier one of its batch, of another task (0 accepts all).

    With several `ranks` each plays a share of the episodes and gets to know the proposals of all, so that an episode
    waits until every rank has proposed; in the end all have all episodes.
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
        """Episodes between the proposer, whose environment is `env`, and the context's agent, who search the context's
        engine. Raises ConfigError for a reward of one's own that cannot compare answers with a majority."""
        metric, own, filters = context.metric, settings.proposer, settings.filters
        by_majority = settings.selfplay.label == "majority"
        if by_majority and metric not in METRICS:
            raise ConfigError(
                "selfplay.label is majority, and the reward is an object of your own, but votes are compared by an "
                f"answer metric. Set reward.name to one of {', '.join(METRICS)} in its place, or selfplay.label to "
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
        """One episode per task, in the tasks' order. Ids and random streams are determined by `key` and the tasks' ids.

        Without `solve` the questions are only proposed, filtered and verified. The proposals of `earlier` episodes, of
        other tasks, count as of the same batch.
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
        """A proposal; after a failure another attempt with new random numbers, at most `refills` times."""
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
    """The episodes unchanged; or all Invalid if the engine found nothing for any proposer, or for any rollout. If it
    found nothing only for solvers, it was lost after the questions were written: these stay, unsolved."""
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
    """The state that the episodes of a batch share. `size` of them are played in this process."""

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
        """Get to know the proposals of the other ranks: all of this one's are there."""
        ranks = self.play.ranks
        if ranks is not None:
            own = [proposal for _, proposal in sorted(self._proposals.items())]
            self._proposals = dict(enumerate(ranks.join(own, list[Trajectory])))
        self._complete.set()

    def passed(self, stage: str) -> None:
        """Record that an episode has finished a stage; later stages end no earlier."""
        stages = ("propose", "verify", "solve")
        self.ended |= dict.fromkeys(stages[stages.index(stage) :], perf_counter())

    async def is_duplicate(self, index: int) -> bool:
        """Whether an earlier proposal of the batch, in the tasks' order, asks the same. Rejected ones do not count, nor
        those of the same task: they are compared with each other, and equal ones must be worth the same."""
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
        """The passages found by each proposer of the batch's other tasks, in the tasks' order. Proposers of the same
        task are excluded: they may have found the passages that this question is about."""
        await self._complete.wait()
        others = (
            proposal for number, proposal in sorted(self._proposals.items()) if self._task(number) != self._task(index)
        )
        return [retrieved_passages(proposal) for proposal in (*self.earlier, *others)]

    def _task(self, index: int) -> object:
        """The id of the task that the proposals of nested sampling share."""
        task = self._proposals[index].question.task
        return task.id if task and task.id else index


async def _all(episodes: Any) -> list[Episode]:
    """The results of all; if one raises, the others are cancelled first, since they may be waiting for it."""
    coroutines: list[Coroutine[Any, Any, Episode]] = list(episodes)
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def majority_answer(answers: Iterable[str | None]) -> str | None:
    """The most frequent answer, compared in normal form and given as it was first written; of equals the first.

    None if there is no answer of which the normal form leaves anything.
    """
    votes: Counter[str] = Counter()
    written: dict[str, str] = {}
    for answer in answers:
        if answer is not None and (normal := comparable(answer)):
            votes[normal] += 1
            written.setdefault(normal, answer)
    return written[votes.most_common(1)[0][0]] if votes else None


async def relabel(group: TrajectoryGroup, reward: RewardFn) -> TrajectoryGroup:
    """The group with its valid members scored by `reward` against their majority answer; all wrong if there is none.

    It is the control without the proposer's answer (as in R-Zero, arXiv 2508.05004, and SQLM, arXiv 2508.03682). If the
    solver is wrong more often than right, its errors are reinforced.

    Everything in a reward that depends on the right answer, such as the penalty for a wrong one, is by the majority's.
    The part `label/agrees` is 1 if the majority gives an answer that the question accepts. The trajectories, and with
    them the proposer's answer, stay as they are, and so do Invalid outcomes.
    """
    pairs = list(zip(group.trajectories, group.outcomes, strict=True))
    label = majority_answer(trajectory.answer for trajectory, outcome in pairs if isinstance(outcome, Scored))

    async def scored(trajectory: Trajectory, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Scored):
            return outcome
        question, agrees = trajectory.question, False
        if label is not None:  # without one, no answer says anything, which is wrong by any other, too
            agrees = comparable(label) in map(comparable, question.golden_answers)
            outcome = await reward(replace(trajectory, question=replace(question, golden_answers=(label,))))
        if isinstance(outcome, Scored):
            outcome = Scored(outcome.reward, {**outcome.parts, "label/agrees": float(agrees)})
        return outcome

    outcomes = await asyncio.gather(*(scored(trajectory, outcome) for trajectory, outcome in pairs))
    return replace(group, outcomes=tuple(outcomes))
