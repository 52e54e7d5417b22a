"""The pieces of a self-play system: the players, their tasks, and how each role is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from evoseek.assembly.agent import Agent
from evoseek.assembly.context import load_run_policy
from evoseek.config.registry import build
from evoseek.errors import ConfigError
from evoseek.loss.base import check_loss
from evoseek.loss.terms import WithTerms
from evoseek.models.policy import Policy
from evoseek.protocols import RewardFn
from evoseek.rollout.environments import AnswerProposerEnv, PassageProposerEnv, ReaderEnv
from evoseek.rollout.roller import Roller
from evoseek.selfplay.episode import SelfPlay, relabel
from evoseek.selfplay.filters import RuleFilter, seen_passages, supporting_passages
from evoseek.selfplay.proposer_reward import ProposerReward
from evoseek.selfplay.settings import GameSettings
from evoseek.selfplay.tasks import sample_passages
from evoseek.selfplay.verify import Verifier
from evoseek.storage.checkpoints import Checkpoint
from evoseek.text.normalization import GRADED, METRICS
from evoseek.training.loop import System
from evoseek.training.plan import TrainingContext, TrainingPlan
from evoseek.training.run_state import State
from evoseek.training.trainer import Objective, Trainer
from evoseek.training.update import GroupUpdate, TwoRoleUpdate
from evoseek.types import Passage
from evoseek.world.world import Oracle, load_world


def _play(
    settings: GameSettings, context: TrainingContext, proposer: Agent, env: type[AnswerProposerEnv | PassageProposerEnv]
) -> SelfPlay:
    """Episodes between the proposer and the context's agent, who search the context's engine. Raises ConfigError for a
    reward of one's own that cannot compare answers with a majority."""
    if settings.selfplay.label == "majority" and context.metric not in METRICS:
        raise ConfigError(
            "selfplay.label is majority, and the reward is an object of your own, but votes are compared by an answer "
            f"metric. Set reward.name to one of {', '.join(METRICS)} in its place, or selfplay.label to proposer."
        )
    tools = context.tools(proposer.prompts, context.engine)
    own, filters, game = settings.proposer, settings.filters, settings.selfplay
    limits = replace(proposer.limits, max_turns=own.max_turns, max_tokens_per_turn=own.max_tokens_per_turn)
    metric = context.metric
    return SelfPlay(
        proposer=proposer.proposer(tools, env, limits=limits, temperature=own.temperature),
        solver=context.solver(context.engine),
        rules=RuleFilter(
            min_words=filters.min_words,
            min_searches=filters.min_searches,
            rules=filters.rules,
            reserved=context.reviewed,
        ),
        reward=context.training_reward,
        proposer_reward=ProposerReward(own.difficulty, own.format_weight, own.rejected_reward, success=metric),
        attempts=own.attempts,
        metric=metric,
        verifier=_verifier(settings, context.agent, context.reward, exact=metric in GRADED),
        evidence=supporting_passages if settings.verification.passages == "supporting" else seen_passages,
        near_duplicates=filters.near_duplicates,
        label=relabel if game.label == "majority" else None,
        ranks=context.ranks,
    )


def _verifier(settings: GameSettings, agent: Agent, correct: RewardFn, *, exact: bool) -> Verifier | None:
    own = settings.verification
    if not (own.readings or own.closed_book):
        return None
    renderer = agent.renderer([])
    limits = replace(agent.limits, max_turns=1)

    def reader(passages: Sequence[Passage]) -> Roller:
        env = ReaderEnv(passages, agent.prompts, renderer.format)
        return agent.roller(env, renderer, limits=limits, temperature=0.0)

    return Verifier(
        reader,
        correct,
        seed=settings.run.seed,
        readings=own.readings,
        noise_passages=own.noise_passages,
        noise=own.noise,
        closed_book=own.closed_book,
        exact=exact,
    )


@dataclass(frozen=True)
class Game:
    """The players, the episodes between them, and how each role is trained."""

    settings: GameSettings
    context: TrainingContext
    proposer: Agent
    solver: Agent
    play: SelfPlay

    @classmethod
    def load(
        cls,
        settings: GameSettings,
        context: TrainingContext,
        env: type[AnswerProposerEnv | PassageProposerEnv],
        *,
        one_policy: bool = True,
    ) -> Game:
        """The policy of the context in both roles; or two that begin as the same model, as the checkpoint has them.
        `env` is the proposer's. Raises PolicyError."""
        if one_policy:
            proposer = context.agent
        else:
            solver, proposing = load_players(settings, context.checkpoint, context.device)
            context.agent = context.agent_of(solver)  # the one that the context's trainer trains
            proposer = context.agent_of(proposing)
        play = _play(settings, context, proposer, env)
        return cls(settings, context, proposer, context.agent, play)

    @property
    def has_one_policy(self) -> bool:
        return self.proposer is self.solver

    @property
    def oracle(self) -> Oracle | None:
        """The oracle for questions, if the corpus is a generated world."""
        world = self.settings.selfplay.world
        return load_world(Path(world)).oracle if world else None

    @cached_property
    def pool(self) -> list[Passage]:
        return sample_passages(self.context.corpus.passages(), self.settings.run.seed)

    @cached_property
    def proposer_trainer(self) -> Trainer:
        """The trainer of the proposer's policy: the run's own where it plays both roles."""
        if self.has_one_policy:
            return self.context.trainer
        return self.context.trainer_of(self.proposer, self._objective(), part="proposer")

    def _objective(self) -> Objective:
        own, context = self.settings.proposer, self.context
        proposing = build("loss", own.loss, context)
        check_loss(proposing)
        loss = WithTerms(proposing, self.settings.algorithm.importance)
        return Objective(loss, build("credit", own.credit, context), own.temperature)

    def proposer_update(self) -> GroupUpdate:
        """The update that trains the proposer: one optimizer step on a batch."""
        masked = self.settings.algorithm.mask_observations
        return self.proposer_trainer.update_by(self._objective(), mask_observations=masked)

    def update(self) -> TwoRoleUpdate:
        """Both roles of one policy in the same optimizer steps."""
        trainer, algorithm = self.context.trainer, self.settings.algorithm
        many, masked = algorithm.mini_batches, algorithm.mask_observations
        proposing = trainer.update_by(self._objective(), mini_batches=many, mask_observations=masked)
        roles = {"proposer": proposing, "solver": trainer.update()}
        return TwoRoleUpdate(trainer.learner, roles, self.settings.run.seed, many)

    def publish_proposer(self, step: int) -> None:
        """Hand the proposer's weights of a step to its sampler."""
        self.proposer_trainer.publish(self.proposer.sampler, step)

    def plan(self, system: System, state: State) -> TrainingPlan:
        """The plan of a system. Held-out questions are answered by the solver."""
        context = self.context
        context.report_models()
        if reserved := len(context.reviewed.texts):
            context.notify(f"{reserved} questions of {self.settings.evaluation.reviewed}, the test set, are left out.")
        context.warn_unknown_words(
            (passage.text for passage in context.corpus.passages()), what="the passages of the index"
        )
        parts = {**context.trainer.parts, **self.proposer_trainer.parts}
        made = context.plan(system, self.play.solver, state=state)
        asked = replace(self.play.solver, sampler=self.proposer.sampler).at(self.settings.proposer.temperature)
        others = [] if self.has_one_policy else [(asked, self.proposer_trainer.own_logprobs())]
        return replace(made, parts=parts, is_game=True, others=others)


def load_players(
    settings: GameSettings, checkpoint: Checkpoint | None, device: str | None = None
) -> tuple[Policy, Policy]:
    """The solver and the proposer: a checkpoint's, or both begun as the model of the settings; on that of the settings
    unless a device is given. Two adapters share one model. Raises PolicyError or ConfigError."""
    device = device or settings.policy.device
    solver = load_run_policy(settings, checkpoint, device=device)
    return solver, load_run_policy(settings, checkpoint, device=device, part="proposer", beside=solver)
