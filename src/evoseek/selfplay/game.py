"""The pieces of a self-play system: the players, their tasks, and how each role is trained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from evoseek.assembly.agent import Agent
from evoseek.assembly.context import load_run_policy
from evoseek.config.registry import build
from evoseek.loss.base import check_loss
from evoseek.loss.terms import WithTerms
from evoseek.rollout.environments import AnswerProposerEnv, PassageProposerEnv, passage_task
from evoseek.selfplay.episode import SelfPlay
from evoseek.selfplay.settings import GameSettings
from evoseek.selfplay.tasks import TaskSource, sample_passages
from evoseek.training.loop import State, System
from evoseek.training.plan import TrainingContext, TrainingPlan
from evoseek.training.trainer import Objective, Trainer
from evoseek.training.update import GroupUpdate, TwoRoleUpdate
from evoseek.types import Passage, Question
from evoseek.world.world import Oracle, load_world

SOURCE_TOKENS = 256  # maximum number of tokens of a passage that a proposer is shown


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
        """Load the context's policy in both roles, or two policies that begin as the same model, from the checkpoint if
        any. Two adapters share one model. `env` is the proposer's. Raises PolicyError or ConfigError."""
        if one_policy:
            proposer = context.agent
        else:
            checkpoint, device = context.checkpoint, context.device
            solver = load_run_policy(settings, checkpoint, device=device)
            proposing = load_run_policy(settings, checkpoint, device=device, part="proposer", beside=solver)
            context.agent = context.agent_of(solver)  # the agent that the context's trainer trains
            proposer = context.agent_of(proposing)
        play = SelfPlay.build(settings, context, proposer, env)
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

    def passage_tasks(self, purpose: str, copies: int, *, shown: bool) -> TaskSource[Passage]:
        """Return tasks from passages, each cut to `SOURCE_TOKENS`, `shown` as in `passage_task`. `purpose` separates
        draws."""
        tokenizer = self.proposer.policy.tokenizer

        def make(id: str, passage: Passage, hops: int) -> Question:
            ids = tokenizer.encode(passage.text, add_special_tokens=False)
            text = passage.text if len(ids) <= SOURCE_TOKENS else str(tokenizer.decode(ids[:SOURCE_TOKENS]))
            return passage_task(id, replace(passage, text=text), hops, shown=shown)

        ratio, seed = self.settings.proposer.ratio, f"{self.settings.run.seed}/{purpose}"
        return TaskSource(self.pool, make, ratio, seed, copies, self.play.proposer.can_ask)

    @cached_property
    def proposer_trainer(self) -> Trainer:
        """The trainer of the proposer's policy: the run's own if one policy plays both roles."""
        if self.has_one_policy:
            return self.context.trainer
        return self.context.trainer_of(self.proposer, self._objective(), part="proposer")

    def _objective(self) -> Objective:
        own, context = self.settings.proposer, self.context
        proposing = build("loss", own.loss, context)
        check_loss(proposing)
        loss = WithTerms(proposing, self.settings.algorithm.importance)
        return Objective(loss, build("credit", own.credit, context), own.temperature)

    def proposer_update(self, mini_batches: int = 1) -> GroupUpdate:
        """Return the update that trains the proposer: one optimizer step on each mini-batch."""
        masked = self.settings.algorithm.mask_observations
        return self.proposer_trainer.update_by(self._objective(), mini_batches=mini_batches, mask_observations=masked)

    def update(self) -> TwoRoleUpdate:
        """Return the update that trains both roles of one policy in the same optimizer steps."""
        trainer, many = self.context.trainer, self.settings.algorithm.mini_batches
        roles = {"proposer": self.proposer_update(many), "solver": trainer.update()}
        return TwoRoleUpdate(trainer.learner, roles, self.settings.run.seed, many)

    def publish_proposer(self, step: int) -> None:
        """Hand the proposer's weights of a step to its sampler."""
        self.proposer_trainer.publish(self.proposer.sampler, step)

    def plan(self, system: System, state: State) -> TrainingPlan:
        """Return the plan of a system. Held-out questions are answered by the solver."""
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
