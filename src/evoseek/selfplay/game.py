"""The pieces of a self-play system: the players, their tasks, and how each role is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol, TypeVar

from evoseek.checkpoints import Checkpoint
from evoseek.env.environments import AnswerProposerEnv, PassageProposerEnv, ReaderEnv
from evoseek.errors import ConfigError
from evoseek.learner.base import LearnerBase
from evoseek.learner.checkpoint import Part
from evoseek.learner.learner import LearnerContext
from evoseek.loss.base import LossFn, LossInputs
from evoseek.loss.terms import corrected
from evoseek.policy.policy import Policy
from evoseek.protocols import RewardFn
from evoseek.registry import build
from evoseek.reward.answer import GRADED
from evoseek.reward.proposer import ProposerReward
from evoseek.reward.shaping import EvidenceReward
from evoseek.rollout.agent import Agent
from evoseek.rollout.roller import Roller
from evoseek.selfplay.distillation import self_distillation
from evoseek.selfplay.episode import SelfPlay, relabel
from evoseek.selfplay.filters import RuleFilter, seen_passages, supporting_passages
from evoseek.selfplay.proposals import TaskSource
from evoseek.selfplay.question_log import QuestionLog
from evoseek.selfplay.settings import GameSettings
from evoseek.selfplay.tasks import SearchChain, answer_tasks, passage_pool, passage_tasks
from evoseek.selfplay.verify import Verifier
from evoseek.training.context import load_run_policy
from evoseek.training.loop import System
from evoseek.training.plan import TrainingContext, TrainingPlan
from evoseek.training.run_state import State
from evoseek.training.samples import old_logprobs, record_samples
from evoseek.training.settings import TrainingSettings
from evoseek.training.trainer import forward_of, load_trainable, ratio_transforms, save_trained, sync
from evoseek.training.update import GroupUpdate, RoleUpdate, TwoRoleUpdate
from evoseek.types import Passage
from evoseek.world.world import Oracle, load_world, world_oracle

_Settings = TypeVar("_Settings", bound=GameSettings)
_Any = TypeVar("_Any", bound=TrainingSettings)


def make_play(
    settings: GameSettings,
    context: TrainingContext,
    proposer: Agent,
    solver: Agent,
    env: type[AnswerProposerEnv | PassageProposerEnv],
) -> SelfPlay:
    """Episodes between two agents (or one in both roles) that search the context's engine. `env` is the proposer's."""
    tools = context.tools(proposer.prompts, context.engine)
    own, filters, game = settings.proposer, settings.filters, settings.selfplay
    limits = replace(proposer.limits, max_turns=own.max_turns, max_tokens_per_turn=own.max_tokens_per_turn)
    weight, metric = game.evidence_weight, context.metric
    return SelfPlay(
        proposer=proposer.proposer(tools, env, limits=limits, temperature=own.temperature),
        solver=context.solver(context.engine, solver),
        rules=RuleFilter(
            min_words=filters.min_words,
            min_searches=filters.min_searches,
            rules=filters.rules,
            reserved=context.reviewed,
        ),
        reward=EvidenceReward(context.reward, weight) if weight > 0 else context.reward,
        proposer_reward=ProposerReward(
            own.difficulty,
            own.format_weight,
            own.rejected_reward,
            success=metric,
        ),
        attempts=own.attempts,
        metric=metric,
        verifier=_verifier(settings, solver, context.reward, exact=metric in GRADED),
        evidence=supporting_passages if settings.verification.passages == "supporting" else seen_passages,
        near_duplicates=filters.near_duplicates,
        label=partial(relabel, metric=metric) if game.label == "majority" else None,
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
class _Game:
    """The players, and the episodes between them."""

    settings: GameSettings
    context: TrainingContext
    proposer: Agent
    solver: Agent
    play: SelfPlay

    @property
    def oracle(self) -> Oracle | None:
        """The oracle for questions, if the corpus is a generated world."""
        world = self.settings.selfplay.world
        return world_oracle(load_world(Path(world))) if world else None

    def plan(
        self,
        system: System,
        parts: Mapping[str, Part],
        *,
        resumed: Callable[[int], None],
        steps: int | None = None,
        is_due: Callable[[int], bool] | None = None,
        state: State | None = None,
    ) -> TrainingPlan:
        """The plan of a system. Held-out questions are answered by the solver."""
        context = self.context
        context.report_models()
        if reserved := len(context.reviewed.texts):
            context.notify(f"{reserved} questions of {self.settings.evaluation.reviewed}, the test set, are left out.")
        context.warn_unknown_words(
            (passage.text for passage in context.corpus.passages()), what="the passages of the index"
        )
        eval_roller = self.play.solver
        if self.settings.evaluation.path:
            eval_roller = context.solver(context.held_out_engine, self.solver)
        return TrainingPlan(
            system, self.settings, parts, resumed, eval_roller, steps, is_due, is_game=True, state=state
        )

    def _proposer_loss(self) -> LossFn[LossInputs]:
        return corrected(build("loss", self.settings.proposer.loss, self.context), self.settings.algorithm)


class AnswerGame(_Game):
    """One policy in both roles; its questions begin with answers."""

    @classmethod
    def load(cls, settings: GameSettings, context: TrainingContext) -> AnswerGame:
        """The policy of the context."""
        agent = context.agent
        return cls(settings, context, agent, agent, make_play(settings, context, agent, agent, AnswerProposerEnv))

    def tasks(self, answers: str) -> TaskSource[SearchChain]:
        """Tasks from a file of answers, or from those of the corpus ("")."""
        return answer_tasks(self.settings, self.context.corpus, answers)

    def update(self, questions: QuestionLog) -> TwoRoleUpdate:
        """Both roles in the same optimizer steps."""
        trainer, settings = self.context.trainer, self.settings
        distillation = settings.selfplay.distillation
        solving = trainer.group_update(
            self_distillation(distillation, trainer, self.solver, self.context.corpus, questions)
        )
        credit = build("credit", settings.proposer.credit, self.context)
        transforms = trainer.corrections()
        proposing = replace(solving, credit=credit, transforms=transforms, penalty=None, distillation=None)
        roles = {
            "proposer": RoleUpdate(proposing.samples, self._proposer_loss()),
            "solver": RoleUpdate(solving.samples, trainer.learner.loss),
        }
        return TwoRoleUpdate(trainer.learner, roles, settings.run.seed, settings.algorithm.mini_batches)


class _PassageSettings(Protocol):
    """How a passage is shown to the proposer, and how fast the proposer learns."""

    show_source: bool


class PassageGame(_Game):
    """Two policies that begin as the same model, or one in both roles; questions begin with passages."""

    @classmethod
    def load(cls, settings: GameSettings, context: TrainingContext, *, one_policy: bool) -> PassageGame:
        """Both as the checkpoint has them, or both begun. Raises PolicyError, ConfigError for several processes with
        servers."""
        if one_policy:
            return cls.between(settings, context, context.agent, context.agent)
        if context.ranks.size > 1 and settings.sampler.name != "torch":
            raise ConfigError(
                f"{settings.run.system} trains two policies in {context.ranks.size} processes, which only the sampler "
                f"torch can follow, but sampler.name is {settings.sampler.name}. Set it to torch, or train in one "
                "process."
            )
        solver, proposer = load_players(settings, context.checkpoint, context.device)
        context.agent = context.agent_of(solver)  # the one that the context's trainer trains
        return cls.between(settings, context, context.agent_of(proposer), context.agent)

    @classmethod
    def between(cls, settings: GameSettings, context: TrainingContext, proposer: Agent, solver: Agent) -> PassageGame:
        """The game between two loaded agents."""
        play = make_play(settings, context, proposer, solver, PassageProposerEnv)
        return cls(settings, context, proposer, solver, play)

    @cached_property
    def pool(self) -> list[Passage]:
        """The passages that questions begin with."""
        return passage_pool(self.context.corpus, self.settings.run.seed)

    def tasks(self, purpose: str, copies: int) -> TaskSource[Passage]:
        """Tasks from passages; `purpose` keeps draws apart."""
        own: _PassageSettings = self.settings.proposer  # pyright: ignore[reportAssignmentType]
        return passage_tasks(
            self.settings,
            self.proposer,
            self.pool,
            purpose=purpose,
            copies=copies,
            shown=own.show_source,
        )

    def solver_update(self, questions: QuestionLog) -> GroupUpdate:
        """The step that trains the solver on written questions."""
        trainer, corpus = self.context.trainer, self.context.corpus
        distillation = self.settings.selfplay.distillation
        return trainer.group_update(self_distillation(distillation, trainer, self.solver, corpus, questions))

    @property
    def has_one_policy(self) -> bool:
        """Whether one policy plays both roles."""
        return self.proposer is self.solver

    def proposer_update(self) -> GroupUpdate:
        """The update that trains the proposer: by its own credit and loss, also with the solver's learner."""
        settings, context = self.settings, self.context
        learner = context.trainer.learner if self.has_one_policy else self.proposer_learner
        credit = build("credit", settings.proposer.credit, context)
        own = old_logprobs(learner, settings, context.ranks, self.trained_proposer.active)
        transforms = ratio_transforms(settings, context.ranks, own)
        return GroupUpdate(learner, credit, settings.run.seed, transforms=transforms, loss=self._proposer_loss())

    @cached_property
    def trained_proposer(self) -> Policy:
        """The proposer that is trained: a copy of the sampler's where several ranks share the weights."""
        context = self.context
        if self.has_one_policy:
            return context.trainer.policy
        if context.ranks.size == 1:
            return self.proposer.policy
        return load_trainable(
            self.settings, context.checkpoint, device=context.device, part="proposer", ranks=context.ranks
        )

    def publish_proposer(self, step: int) -> None:
        """Hand the proposer's weights of a step to its sampler."""
        if self.has_one_policy:
            self.context.publish(step)
            return
        sync(self.trained_proposer, self.proposer.policy)
        self.proposer.sampler.update_weights(step)

    @cached_property
    def proposer_learner(self) -> LearnerBase[LossInputs]:
        """The proposer's learner."""
        policy = self.trained_proposer
        forward = forward_of(self.settings, policy, temperature=self.settings.proposer.temperature)
        context = LearnerContext(
            forward,
            self._proposer_loss(),
            ranks=self.context.ranks,
            dump=self.context.run.dump,
            active=policy.active,
            deferred_weights=policy.deferred_weights,
        )
        learner = build("learner", self.settings.learner, context)
        record_samples(learner, self.settings, self.context.run, self.context.ranks, policy.active)
        return learner

    @property
    def parts(self) -> dict[str, Part]:
        """The parts of a checkpoint."""
        if self.has_one_policy:
            return dict(self.context.trainer.parts)
        save = partial(save_trained, self.trained_proposer, ranks=self.context.ranks)
        proposer = Part(save, self.proposer_learner)
        return {**self.context.trainer.parts, "proposer": proposer}


def load_players(
    settings: GameSettings, checkpoint: Checkpoint | None, device: str | None = None
) -> tuple[Policy, Policy]:
    """The solver and the proposer: a checkpoint's, or both begun as the model of the settings; on that of the settings
    unless a device is given. Two adapters share one model. Raises PolicyError or ConfigError."""
    device = device or settings.policy.device
    solver = load_run_policy(settings, checkpoint, device=device)
    return solver, load_run_policy(settings, checkpoint, device=device, part="proposer", beside=solver)
