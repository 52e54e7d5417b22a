"""Search Self-play (arXiv 2510.18821): one policy proposes and solves, both in the same update.

    for step = 1 .. steps:
        for every answer of a batch: a question for it, written by searching backwards from the answer
        rule filter;  verification: answered right from the proposer's passages among noise
        the solver's attempts at every valid question
        reward: 1 - mean of the solver's for a valid question, 0 for another
        what replaces rejected questions: `fill`
        one update of both roles: REINFORCE for the proposer, GRPO for the solver

Filling:  dummy          nothing: the batch is smaller
          resample       further answers, within a bound
          replay         valid questions of earlier steps, solved again by the policy as it is now
          replay-reset   as replay, of the steps since the last multiple of `reset_every`

A negative reward for rejected questions makes proposing itself unlikely; without verification the proposer is rewarded
for unanswerable questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from evoseek.assembly.settings import RunSettings
from evoseek.config.sections import Section, table
from evoseek.models.settings import PolicySettings
from evoseek.rollout.environments import AnswerProposerEnv
from evoseek.rollout.record import TrajectoryWriter
from evoseek.rollout.roller import failed_if_nothing_found
from evoseek.selfplay.episode import EpisodeSeconds, SelfPlay
from evoseek.selfplay.metrics import selfplay_metrics
from evoseek.selfplay.question_log import QuestionLog, draw_again
from evoseek.selfplay.settings import FilterSettings, GameSettings, ProposerSettings, VerificationSettings
from evoseek.selfplay.tasks import SearchChain, TaskSource, answer_tasks, check_groups, proposal_groups, solver_groups
from evoseek.training.rollout_metrics import StepReport, too_many_failures
from evoseek.types import Episode, TrajectoryGroup
from evoseek.world.world import Oracle

if TYPE_CHECKING:
    from evoseek.selfplay.game import Game
    from evoseek.training.plan import TrainingContext, TrainingPlan

Fill = Literal["dummy", "resample", "replay", "replay-reset"]
Role = Literal["proposer", "solver"]


class FillSettings(Section):
    """Settings specific to Search Self-play."""

    answers: str = Field(default="", description="File of answers: JSON lines. Default: answers mined from the corpus.")
    train: Literal["both", "solver", "proposer"] = Field(default="both", description="Roles that learn.")
    fill: Fill = Field(
        default="replay-reset",
        description="What replaces rejected questions: nothing (dummy), further answers (resample), or questions of "
        "earlier steps (replay), which replay-reset forgets every 10 steps.",
    )


@dataclass(slots=True)
class SSP:
    """Search Self-play (arXiv 2510.18821): one policy proposes and solves, both in the same update.

    `training.loop.TrainingLoop` repeats `step`. `trained` are the roles that learn; `update` makes a step's optimizer
    steps from the groups of both and returns their metrics. A step draws at most `resample_limit` x
    `proposals_per_step` answers. Questions for replay come from `questions`, so a resumed run replays the same ones.
    `given` counts the answers given to proposers so far in a run: the next one is new to the pass. If surely more than
    `max_invalid` of a step's attempts failed, nothing is trained on, and no answer counts as given.
    """

    play: SelfPlay
    tasks: TaskSource[SearchChain]
    update: Callable[[int, Mapping[str, Sequence[TrajectoryGroup]]], dict[str, float]]
    publish: Callable[[int], None]
    questions: QuestionLog
    trajectories: TrajectoryWriter
    seed: int
    proposals_per_step: int
    trained: Sequence[Role] = ("proposer", "solver")
    fill: Fill = "replay-reset"
    reset_every: int = 10
    resample_limit: int = 4
    oracle: Oracle | None = None
    given: int = 0
    max_invalid: float = 1.0

    class Settings(GameSettings):
        """Settings of Search Self-play."""

        run: RunSettings = RunSettings(system="ssp")
        policy: PolicySettings = PolicySettings(model="tiny-reader")
        proposer: ProposerSettings = table(
            ratio=(1.0, 1.0, 1.0),
            difficulty="failure",
            format_weight=0.0,
            credit={"name": "raw"},
            loss={"name": "reinforce", "aggregate": "sequence-sum"},
        )
        filters: FilterSettings = FilterSettings(min_searches=1)
        verification: VerificationSettings = VerificationSettings(readings=1, passages="supporting")
        ssp: FillSettings = FillSettings()

        @property
        def searches(self) -> tuple[int, str]:
            """The searches of the longest question, all of them requested."""
            return self.longest, "searches"

        @property
        def proposer_learns(self) -> bool:
            return self.ssp.train != "solver"

        def problems(self) -> Iterator[str]:
            """Yield a problem if the policy has two temperatures, or no number of searches is requested."""
            yield from super().problems()
            if not self.proposer.ratio:
                yield (
                    "proposer.ratio is [], but in ssp a question is worked back from its answer by a requested number "
                    "of searches. Set proposer.ratio to shares, as in [1, 1, 1], or train dr-zero."
                )
            yield from self.one_temperature("in ssp")

    @classmethod
    def build(cls, settings: Settings, context: TrainingContext) -> TrainingPlan:
        """Build the plan with one policy in both roles."""
        own = settings.ssp
        game, tasks = cls.proposing(settings, context)
        questions = QuestionLog(context.run.questions, context.ranks, context.reviewed)
        system = cls(
            play=game.play,
            tasks=tasks,
            update=game.update(),
            publish=context.publish,
            questions=questions,
            trajectories=context.trajectories,
            seed=settings.run.seed,
            proposals_per_step=settings.selfplay.proposals_per_step,
            trained=("proposer", "solver") if own.train == "both" else (own.train,),
            fill=own.fill,
            oracle=game.oracle,
            max_invalid=settings.run.max_invalid,
        )
        return game.plan(system, system)

    @classmethod
    def proposing(cls, settings: Settings, context: TrainingContext) -> tuple[Game, TaskSource[SearchChain]]:
        """Return the game and the proposer's tasks, for writing questions without training."""
        from evoseek.selfplay.game import Game  # imports torch, which the settings do not need

        game = Game.load(settings, context, AnswerProposerEnv)
        return game, answer_tasks(settings, context.corpus, settings.ssp.answers, game.play.proposer.can_ask)

    def state(self) -> dict[str, int]:
        """Return the state of the steps so far, for checkpoints."""
        return {"tasks": self.given}

    def restore(self, state: Mapping[str, int]) -> None:
        """Restore from `state`; an empty mapping resets."""
        self.given = state.get("tasks", 0)

    async def step(self, step: int) -> StepReport:
        started, stages, given = perf_counter(), EpisodeSeconds(), self.given
        episodes, fresh = await self._episodes(step, stages), perf_counter()
        replayed = await self._replay(step, self._full_batch - _count_valid(episodes))
        played = perf_counter()
        stages.solve += played - fresh
        groups: dict[str, Sequence[TrajectoryGroup]] = {
            "proposer": proposal_groups(episodes, "task"),
            "solver": [*solver_groups(episodes), *replayed],
        }
        played_groups = [group for role in groups.values() for group in role]
        self.trajectories.write(step, [*played_groups, *check_groups(episodes)])
        has_failed = too_many_failures(played_groups, self.max_invalid)
        if has_failed:
            self.given = given
        else:
            self.questions.append(step, [episode.question for episode in episodes if episode.question])
        play = self.play
        metrics = selfplay_metrics(episodes, oracle=self.oracle, metric=play.metric)
        metrics["selfplay/replayed"] = float(len(replayed))
        metrics |= self.update(step, {} if has_failed else {role: groups[role] for role in self.trained})
        self.publish(step)
        timings = {**stages.timings(), "rollout/seconds": played - started, "learner/seconds": perf_counter() - played}
        return StepReport.of(played_groups, metrics, timings)

    @property
    def _full_batch(self) -> int:
        return self.proposals_per_step * self.tasks.copies

    async def _episodes(self, step: int, stages: EpisodeSeconds) -> list[Episode]:
        """Play the step's episodes; with `resample` more rounds until enough questions are valid."""
        rounds = self.resample_limit if self.fill == "resample" else 1
        most, drawn, wanted = self.proposals_per_step * rounds, 0, self.proposals_per_step
        episodes: list[Episode] = []
        while wanted > 0:
            tasks = self.tasks(self.given, wanted, f"{step:06d}-{drawn:04d}")
            episodes += await self.play(tasks, f"step-{step:06d}", stages=stages, earlier=episodes)
            drawn += wanted
            self.given += wanted
            missing = -(-(self._full_batch - _count_valid(episodes)) // self.tasks.copies)
            wanted = min(missing, most - drawn)
        return episodes

    async def _replay(self, step: int, missing: int) -> list[TrajectoryGroup]:
        """Solve earlier valid questions again instead of the `missing` ones. Only the solver learns from them: the
        proposer's rollouts are too old."""
        if missing <= 0 or "solver" not in self.trained or self.fill not in ("replay", "replay-reset"):
            return []
        first = 1 if self.fill == "replay" else (step - 1) // self.reset_every * self.reset_every + 1
        drawn = draw_again(self.questions.read(first, step - 1), missing, f"{self.seed}/replay/{step}")
        keys = [f"step-{step:06d}/replay-{number:04d}" for number in range(len(drawn))]  # one may be drawn twice
        return failed_if_nothing_found(await self.play.solve_all(drawn, keys))


def _count_valid(episodes: Sequence[Episode]) -> int:
    return sum(episode.question is not None for episode in episodes)
