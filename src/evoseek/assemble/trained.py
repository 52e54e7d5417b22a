"""From a config to what is trained: a policy, for PPO its critic, and what is done with a step's rollouts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypedDict, cast

from transformers import PreTrainedModel

from evoseek.assemble.agent import load_trainable
from evoseek.assemble.algorithm import make_credit, make_loss, make_proposer_loss
from evoseek.config import Config
from evoseek.errors import ConfigError
from evoseek.learner.checkpoint import Checkpoint, Part
from evoseek.learner.checkpointing import checkpoint_activations
from evoseek.learner.distributed import ALONE, Ranks
from evoseek.learner.learner import Learner
from evoseek.learner.logprobs import LogprobModel
from evoseek.learner.reference import Scoring, with_old_logprobs, with_ref_logprobs, with_values
from evoseek.learner.sharding import full_state_dict, shard_module
from evoseek.learner.values import ValueModel
from evoseek.loss.base import LossInputs, ValueInputs
from evoseek.loss.cross_entropy import CrossEntropyLoss
from evoseek.loss.value import ValueLoss
from evoseek.policy.critic import load_critic, save_critic
from evoseek.policy.load import load_policy, save_policy
from evoseek.policy.policy import Policy, base_of
from evoseek.runs import RunDirectory
from evoseek.training.ppo import PPOUpdate
from evoseek.training.update import Completion, GroupUpdate, KLPenalty, TokenAdvantages, Update


class Optimization(TypedDict):
    """What a policy's learner and a critic's have in common."""

    weight_decay: float
    betas: tuple[float, float]
    max_grad_norm: float
    token_budget: int
    bf16: bool


@dataclass(frozen=True, slots=True)
class Trained:
    """What a run trains: a policy, and for PPO its critic."""

    config: Config
    policy: Policy
    learner: Learner[LossInputs]
    critic: Learner[ValueInputs] | None
    ranks: Ranks

    @classmethod
    def load(
        cls, config: Config, sampled: Policy, run: RunDirectory, checkpoint: Checkpoint | None, ranks: Ranks
    ) -> Trained:
        """Learners for the sampler's policy itself or, where several ranks share the weights, for another copy."""
        policy = sampled if ranks.size == 1 else load_trainable(config, checkpoint, device=str(ranks.device))
        critic = None
        if config.algorithm.advantage == "gae":
            source = str(checkpoint.part_directory("critic")) if checkpoint else config.policy.model
            model = load_critic(source, device=str(ranks.device))
            critic = make_critic_learner(config, model, dump=run.dump, ranks=ranks)
        return cls(config, policy, make_learner(config, policy, dump=run.dump, ranks=ranks), critic, ranks)

    @property
    def parts(self) -> dict[str, Part]:
        """What a checkpoint is made of."""
        parts = {"policy": Part(self._save_policy, self.learner)}
        return parts | ({"critic": Part(self._save_critic, self.critic)} if self.critic else {})

    def update(self) -> Update:
        """What is done with the groups of a step."""
        if self.critic is None:
            return self.group_update()
        algorithm, critic = self.config.algorithm, self.config.critic
        return PPOUpdate(
            learner=self.learner,
            critic=self.critic,
            predict=partial(with_values, forward=self.critic.forward, **self._scoring()),
            seed=self.config.run.seed,
            gamma=critic.gamma,
            lam=critic.lam,
            mini_batches=algorithm.mini_batches,
            policy_after=critic.policy_after,
            completions=self._completions(),
            penalty=self._penalty(),
            mask_observations=algorithm.mask_observations,
        )

    def group_update(self, distillation: TokenAdvantages | None = None) -> GroupUpdate:
        """The same for an algorithm without a critic, as self-play has it."""
        algorithm = self.config.algorithm
        return GroupUpdate(
            learner=self.learner,
            credit=make_credit(self.config),
            seed=self.config.run.seed,
            mini_batches=algorithm.mini_batches,
            completions=self._completions(distilled=distillation is not None),
            penalty=self._penalty(),
            mask_observations=algorithm.mask_observations,
            distillation=distillation,
        )

    def own_logprobs(self) -> Completion:
        """Puts the logprobs of the policy as it is now into `ref_logprobs`."""
        return partial(with_ref_logprobs, forward=self.learner.forward, **self._scoring(self.policy.active))

    def _penalty(self) -> KLPenalty | None:
        algorithm = self.config.algorithm
        in_reward = algorithm.kl_in == "reward" and algorithm.kl_coefficient > 0
        return KLPenalty(algorithm.kl_coefficient) if in_reward else None

    def _completions(self, *, distilled: bool = False) -> list[Completion]:
        """What loss and advantages need besides the sampler's logprobs.

        Where the sampler computes otherwise than the learner, these are the learner's own; but a batch that is trained
        on in one step is its own record (`LogprobModel.ratio_to_own`).
        """
        algorithm, own = self.config.algorithm, self.learner.forward
        completions: list[Completion] = []
        is_read = distilled or algorithm.mini_batches > 1 or self._penalty() is not None
        corrects = is_read and not computes_alike(self.config, self.ranks)
        if corrects or algorithm.importance != "none" or not algorithm.mask_observations:
            completions.append(partial(with_old_logprobs, forward=own, **self._scoring(self.policy.active)))
        if algorithm.kl_coefficient > 0:
            completions.append(self._reference())
        return completions

    def _reference(self) -> Completion:
        """Logprobs of the policy that training began with: under a new adapter its base, else a frozen copy."""
        if self.config.lora.rank > 0:
            base = base_of(self.policy)
            return partial(with_ref_logprobs, forward=self.learner.forward, **self._scoring(base.active))
        settings = self.config.policy
        frozen = load_policy(settings.model, device=str(self.ranks.device), dtype=settings.dtype)
        forward = LogprobModel(frozen.model.requires_grad_(False), temperature=self.config.rollout.temperature)
        return partial(with_ref_logprobs, forward=forward, **self._scoring())

    def _scoring(self, active: Callable[[], AbstractContextManager[object]] = nullcontext) -> Scoring:
        settings, ranks = self.config.learner, self.ranks
        return {"token_budget": settings.token_budget, "bf16": settings.bf16, "ranks": ranks, "active": active}

    def _save_policy(self, directory: Path) -> None:
        weights = full_state_dict(self.policy.model, self.ranks) if self.ranks.size > 1 else None
        if self.ranks.is_first:
            save_policy(self.policy, directory, state_dict=weights)

    def _save_critic(self, directory: Path) -> None:
        model = cast("Learner[ValueInputs]", self.critic).model
        weights = full_state_dict(model, self.ranks) if self.ranks.size > 1 else None
        if self.ranks.is_first:
            save_critic(cast("PreTrainedModel", model), directory, state_dict=weights)


def make_proposer_learner(config: Config, policy: Policy, *, dump: Path | None = None) -> Learner[LossInputs]:
    """The learner of Dr. Zero's proposer."""
    forward = LogprobModel(policy.model, temperature=config.proposer.temperature)
    _prepare(config, forward, policy.model, ALONE)
    return Learner(
        forward,
        loss=make_proposer_loss(config),
        learning_rate=config.proposer.learning_rate or config.learner.learning_rate,
        warmup_steps=config.learner.warmup_steps,
        active=policy.active,
        dump=dump,
        **_optimization(config),
    )


def make_learner(
    config: Config, policy: Policy, *, dump: Path | None = None, ranks: Ranks = ALONE
) -> Learner[LossInputs]:
    """The learner of a policy, with the algorithm's loss."""
    forward = LogprobModel(
        policy.model,
        temperature=config.rollout.temperature,
        entropy_gradient=config.algorithm.entropy_coefficient > 0,
        ratio_to_own=not computes_alike(config, ranks),
    )
    _prepare(config, forward, policy.model, ranks)
    return Learner(
        forward,
        loss=make_loss(config),
        learning_rate=config.learner.learning_rate,
        warmup_steps=config.learner.warmup_steps,
        active=policy.active,
        dump=dump,
        ranks=ranks,
        **_optimization(config),
    )


def make_supervised_learner(config: Config, policy: Policy, *, total_steps: int) -> Learner[LossInputs]:
    """The learner of a policy that is shown what to write; its learning rate falls to 0 at the last step."""
    forward = LogprobModel(policy.model)
    _prepare(config, forward, policy.model, ALONE)
    return Learner(
        forward,
        loss=CrossEntropyLoss(),
        learning_rate=config.learner.learning_rate,
        warmup_steps=config.learner.warmup_steps,
        total_steps=total_steps,
        active=policy.active,
        **_optimization(config),
    )


def make_critic_learner(
    config: Config, model: PreTrainedModel, *, dump: Path | None = None, ranks: Ranks = ALONE
) -> Learner[ValueInputs]:
    """The learner of PPO's critic. It has a learning rate of its own; all else is as the policy's."""
    forward = ValueModel(model)
    _prepare(config, forward, model, ranks)
    return Learner(
        forward,
        loss=ValueLoss(config.critic.clip),
        learning_rate=config.critic.learning_rate,
        warmup_steps=config.critic.warmup_steps,
        dump=dump,
        ranks=ranks,
        **_optimization(config),
    )


def computes_alike(config: Config, ranks: Ranks) -> bool:
    """Whether sampler and learner give a token the same logprob up to float32's rounding: both compute in float32, in
    one process. Else a ratio between the two would hold their rounding, which a clip takes for a change of policy."""
    return ranks.size == 1 and config.policy.dtype == "float32" and not config.learner.bf16


def check_dtype(config: Config, policy: Policy, ranks: Ranks = ALONE) -> None:
    """Raise ConfigError for weights of a type that cannot be trained, or not by so many processes."""
    if config.policy.dtype != "float32" and policy.adapter is None:
        raise ConfigError(
            f"policy.dtype is {config.policy.dtype}, but weights are trained in float32: in {config.policy.dtype} the "
            "small updates of a usual learning rate round to nothing. Set policy.dtype to float32, and learner.bf16 "
            "to true to compute in bfloat16; or train an adapter (lora.rank above 0), which is always in float32."
        )
    if config.policy.dtype != "float32" and ranks.size > 1:
        raise ConfigError(
            f"policy.dtype is {config.policy.dtype}, but {ranks.size} processes share the weights in float32 only: "
            "adapters are kept in it, and both must be of one kind. Set policy.dtype to float32, or train in one "
            "process."
        )


def _prepare(config: Config, forward: LogprobModel | ValueModel, model: PreTrainedModel, ranks: Ranks) -> None:
    """What is done to a model in place, before an optimizer is made."""
    if config.learner.gradient_checkpointing:
        checkpoint_activations(model)
    shard_module(forward, ranks)


def _optimization(config: Config) -> Optimization:
    settings = config.learner
    return {
        "weight_decay": settings.weight_decay,
        "betas": settings.betas,
        "max_grad_norm": settings.max_grad_norm,
        "token_budget": settings.token_budget,
        "bf16": settings.bf16,
    }
