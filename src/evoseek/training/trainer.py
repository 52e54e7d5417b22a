"""The trainer of a policy: its learner, PPO's critic, and the update from a step's rollouts.

A run has one for its policy; self-play with two policies has another for its proposer. Only `Trainer.ratios` decides
the reference of a loss's ratios.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress, groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, cast

from transformers import PreTrainedModel

from evoseek.assembly.context import load_run_policy, loader_of
from evoseek.assembly.settings import TrainingSettings
from evoseek.config.registry import build, find
from evoseek.credit import Credit, needs_critic
from evoseek.learner.checkpoint import CheckpointPart
from evoseek.learner.distributed import ALONE, Ranks
from evoseek.learner.learner import Forward, Learner, LearnerBase, LearnerContext
from evoseek.learner.logprobs import AnyForward, LogprobModel, ValueModel, with_scores
from evoseek.learner.sharding import copy_weights, full_state_dict, load_deferred
from evoseek.loss.base import LossFn, LossInputs, ValueInputs, check_loss
from evoseek.loss.likelihood import ValueLoss
from evoseek.loss.terms import wrapped
from evoseek.models.load import load_critic, load_policy, prepare_process, save_critic, save_policy
from evoseek.models.policy import Policy, RemotePolicy, base_of
from evoseek.models.settings import EngineSettings
from evoseek.protocols import Sampler
from evoseek.rollout.record import COMPACT
from evoseek.storage.checkpoints import Checkpoint
from evoseek.storage.jsonl import ResumableJsonl
from evoseek.storage.runs import RunDirectory
from evoseek.training.update import GroupUpdate, PPOUpdate, SampleTransform
from evoseek.types import TrainingSample


@dataclass(frozen=True, slots=True)
class Objective:
    """The objective of a role: a loss with all of its terms, a credit, and the temperature of its rollouts.
    `entropy_gradient` if the loss has an entropy term."""

    loss: LossFn[LossInputs]
    credit: Any
    temperature: float
    entropy_gradient: bool = False

    @classmethod
    def of(
        cls, settings: TrainingSettings, loss: LossFn[LossInputs] | None = None, credit: Credit | None = None
    ) -> Objective:
        """Return the objective of the settings, with `loss` and `credit` in place of theirs."""
        algorithm = settings.algorithm
        own = loss or build("loss", settings.loss, settings)
        check_loss(own)
        return cls(
            wrapped(own, algorithm),
            credit or build("credit", settings.credit, settings),
            settings.learnt_temperature,
            algorithm.entropy_coefficient > 0,
        )


@dataclass(frozen=True, slots=True)
class Trainer:
    """A policy with its learner and credit; for PPO a critic with its own learner.

    `part` is the policy's name in checkpoints. `sampled` is the sampler's policy: the same object, or a copy if the
    sampler computes in this process and ranks share the weights or rollouts continue during training.
    """

    settings: TrainingSettings
    policy: Policy
    sampled: Policy
    learner: LearnerBase[LossInputs]
    credit: Any
    critic: LearnerBase[ValueInputs] | None
    ranks: Ranks
    part: str

    @classmethod
    def load(
        cls,
        settings: TrainingSettings,
        sampled: Policy,
        objective: Objective,
        run: RunDirectory,
        checkpoint: Checkpoint | None,
        ranks: Ranks,
        part: str,
        total_steps: int | None,
    ) -> Trainer:
        """Make the learners of the objective. With `total_steps` the learning rate falls to 0 by then.

        If rollouts of a sampler in this process continue during an update, the sampler has its own policy: neither
        weights nor active adapter may change under it. Raises PolicyError or ConfigError.
        """
        policy = sampled
        if samples_apart(settings, ranks):
            policy = load_trainable(settings, checkpoint, device=str(sampled.model.device), part=part, ranks=ranks)
        how = {"temperature": objective.temperature, "entropy_gradient": objective.entropy_gradient}
        forward = forward_of(settings, policy, **how)
        context = LearnerContext(
            forward,
            objective.loss,
            total_steps=total_steps,
            ranks=ranks,
            dump=run.dump,
            active=policy.active,
            deferred_weights=policy.deferred_weights,
        )
        critic = _load_critic(settings, run, checkpoint, ranks) if needs_critic(objective.credit) else None
        learner = build("learner", settings.learner, context)
        prepare_process(policy)  # if it had no weights and no device when its agent was made
        trainer = cls(settings, policy, sampled, learner, objective.credit, critic, ranks, part)
        if (recorded := settings.run.record_samples) != "no":
            complete = trainer.own_logprobs() if recorded == "tokens" else None
            learner.record = SampleRecord(ResumableJsonl(run.samples, COMPACT), ranks.is_first, complete)
        return trainer

    @property
    def parts(self) -> dict[str, CheckpointPart]:
        parts = {self.part: CheckpointPart(self._save_policy, self.learner)}
        return parts | ({"critic": CheckpointPart(self._save_critic, self.critic)} if self.critic else {})

    def __str__(self) -> str:
        """Describe what is trained, its data type and device, and the layout of samples in a micro-batch."""
        if isinstance(self.policy, RemotePolicy):
            return f"Training {self.policy}."
        model, adapted = self.policy.model, self.policy.adapter is not None
        what = "an adapter in float32 over a base" if adapted else "all weights"
        dtype = str(model.dtype).removeprefix("torch.")
        masters = ", through float32 masters" if dtype == "bfloat16" and not adapted else ""
        forward = self.learner.forward
        layout = f" {forward.layout}" if isinstance(forward, LogprobModel) else ""
        return f"Training {what} in {dtype} on {model.device}{masters}.{layout}"

    def publish(self, sampler: Sampler, step: int) -> None:
        """Hand the weights of a step to the policy's sampler; a collective."""
        if self.policy.model is not self.sampled.model:
            copy_weights(self.policy.model, self.sampled.model)
        sampler.update_weights(step, self._whole_weights())

    def _whole_weights(self) -> dict[str, Any] | None:
        """Gather shared weights on the first rank for a sampler in another process; None if it has them. A
        collective."""
        shared = self.ranks.size > 1 and self.policy.model is self.sampled.model
        return dict(full_state_dict(self.policy.model, self.ranks)) if shared else None

    def update(self) -> GroupUpdate:
        algorithm = self.settings.algorithm
        in_reward = algorithm.kl_in == "reward" and algorithm.kl_coefficient > 0
        unrecorded = not algorithm.mask_observations
        compared = self.ratios(algorithm.mini_batches, unrecorded=unrecorded)
        transforms = [self.own_logprobs()] if unrecorded or (in_reward and compared) else []
        if algorithm.kl_coefficient > 0:
            (transforms if in_reward else compared).append(self._reference())
        make: Callable[..., GroupUpdate] = GroupUpdate
        if self.critic is not None:
            transforms.append(self._scores("values", self.critic))
            warmup_steps = self.settings.critic.critic_warmup_steps
            make = partial(PPOUpdate, critic=self.critic, critic_warmup_steps=warmup_steps)
        return make(
            learner=self.learner,
            credit=self.credit,
            seed=self.settings.run.seed,
            mini_batches=algorithm.mini_batches,
            transforms=transforms,
            compared=compared,
            kl_coefficient=algorithm.kl_coefficient if in_reward else 0.0,
            mask_observations=algorithm.mask_observations,
        )

    def update_by(self, objective: Objective, *, mini_batches: int = 1, mask_observations: bool = True) -> GroupUpdate:
        """Return an update by another objective, without penalty or reference: a proposer's."""
        return GroupUpdate(
            learner=self.learner,
            credit=objective.credit,
            seed=self.settings.run.seed,
            mini_batches=mini_batches,
            transforms=[] if mask_observations else [self.own_logprobs()],
            compared=self.ratios(mini_batches, unrecorded=not mask_observations),
            mask_observations=mask_observations,
            loss=objective.loss,
        )

    def own_logprobs(self) -> SampleTransform:
        """Return a transform that sets `old_logprobs` to the logprobs of the current policy."""
        return self._scores("old_logprobs", self.learner, self.policy.active)

    def ratios(self, mini_batches: int, *, unrecorded: bool) -> list[SampleTransform]:
        """Return what replaces the sampler's record as the `old_logprobs` of a mini-batch: the only decision on the
        reference of ratios.

        Nothing replaces it if sampler and learner compute alike. Otherwise the learner's own logprobs do, from before
        the step's first optimizer step: with one mini-batch from its own forward pass (None), with several scored
        ahead. Importance weights, and tokens that the sampler has not written (`unrecorded`), always need the learner's
        own.
        """
        own = unrecorded or self.settings.algorithm.importance != "none"
        if computes_alike(self.settings, self.ranks) and not own:
            return []
        return [self.own_logprobs() if mini_batches > 1 else without_old_logprobs]

    def _reference(self) -> SampleTransform:
        """Return a transform that adds logprobs of the initial policy: a new adapter's base, else a frozen copy."""
        if self.settings.lora.rank > 0:
            return self._scores("ref_logprobs", self.learner, base_of(self.policy).active)
        settings = self.settings.policy
        frozen = load_policy(settings.model, device=str(self.ranks.device), dtype=settings.dtype)
        forward = LogprobModel(frozen.model.requires_grad_(False), temperature=self.settings.rollout.temperature)
        return self._scores("ref_logprobs", self.learner, forward=forward)

    def _scores(
        self,
        field: Literal["ref_logprobs", "old_logprobs", "values"],
        learner: LearnerBase[Any],
        active: Callable[[], AbstractContextManager[object]] = nullcontext,
        forward: AnyForward | None = None,
    ) -> SampleTransform:
        """Return a transform that fills in a field by forward passes with this learner's micro-batches."""
        settings, given = self.settings.learner, forward or learner.forward

        def complete(samples: Sequence[TrainingSample]) -> list[TrainingSample]:
            budget: int = getattr(learner, "token_budget", settings.token_budget)  # halved when memory runs out
            how: dict[str, Any] = {"token_budget": budget, "bf16": settings.bf16, "ranks": self.ranks, "active": active}
            return with_scores(field, samples, given, **how)

        return complete

    def _save_policy(self, directory: Path) -> None:
        """Save the policy, or the place of its weights at a service. The first rank gathers sharded weights."""
        policy, ranks = self.policy, self.ranks
        if isinstance(policy, RemotePolicy):
            policy.save(directory)
            return
        weights = full_state_dict(policy.model, ranks) if ranks.size > 1 else None
        if ranks.is_first:
            save_policy(policy, directory, weights)

    def _save_critic(self, directory: Path) -> None:
        model = cast("LearnerBase[ValueInputs]", self.critic).model
        weights = full_state_dict(model, self.ranks) if self.ranks.size > 1 else None
        if self.ranks.is_first:
            save_critic(cast("PreTrainedModel", model), directory, state_dict=weights)


def samples_apart(settings: TrainingSettings, ranks: Ranks) -> bool:
    """Return whether the sampler computes in this process with its own copy of the policy."""
    served = isinstance(settings.sampler, EngineSettings) or settings.learner.is_remote
    return not served and (ranks.size > 1 or settings.max_staleness > 0)


def load_trainable(
    settings: TrainingSettings,
    checkpoint: Checkpoint | None,
    *,
    device: str,
    part: str = "policy",
    ranks: Ranks = ALONE,
) -> Policy:
    """Load a policy to train. Ranks that share its weights, if they can, read them when it is sharded."""
    if loader_of(settings) is None and reads_rows(settings, ranks):
        directory = checkpoint and checkpoint.part_directory(part)
        if deferred := load_deferred(str(directory or settings.policy.model)):
            return deferred
    return load_run_policy(settings, checkpoint, device=device, part=part)


def reads_rows(settings: TrainingSettings, ranks: Ranks) -> bool:
    """Return whether each process can read only its rows of the weights: of float32 models with the built-in
    learner."""
    own = find("learner", settings.learner.name) is Learner
    return ranks.size > 1 and own and settings.lora.rank == 0 and settings.policy.dtype == "float32"


def forward_of(settings: TrainingSettings, policy: Policy, **how: Any) -> Forward[LossInputs]:
    """Make a policy's forward pass with LogprobModel's options, or by the learner's own `forward_of`."""
    own = getattr(find("learner", settings.learner.name), "forward_of", None)
    return own(policy, **how) if own else LogprobModel(policy.model, **how)


def computes_alike(settings: TrainingSettings, ranks: Ranks) -> bool:
    """Return whether sampler and learner give equal logprobs up to float32's rounding: both compute in float32, in one
    process. Otherwise their ratio would contain rounding errors, which a clip would treat as a change of policy."""
    in_process = settings.sampler.name == "torch" and ranks.size == 1
    return in_process and settings.policy.dtype == "float32" and not settings.learner.bf16


def without_old_logprobs(samples: Sequence[TrainingSample]) -> list[TrainingSample]:
    """Drop `old_logprobs`, for ratios to the optimizer step's own forward pass."""
    return [replace(sample, old_logprobs=None) for sample in samples]


def _load_critic(
    settings: TrainingSettings, run: RunDirectory, checkpoint: Checkpoint | None, ranks: Ranks
) -> LearnerBase[ValueInputs]:
    """Make the learner of PPO's critic, with its own learning rate; all else is as for the policy."""
    source = str(checkpoint.part_directory("critic")) if checkpoint else settings.policy.model
    forward = ValueModel(load_critic(source, device=str(ranks.device)))
    own = {"learning_rate": settings.critic.learning_rate, "warmup_steps": settings.critic.warmup_steps}
    context = LearnerContext(forward, ValueLoss(), ranks=ranks, dump=run.dump)
    return build("learner", settings.learner.model_copy(update=own), context)


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """A record of the learner's input for each rollout in `file` (samples.jsonl), a JSON object a line, written by the
    first rank:

    id             the trajectory's id, as in trajectories.jsonl
    advantages     of its action tokens: one number if all have the same, else one for each
    old_logprobs   of its action tokens, by the learner before the optimizer step of the rollout's mini-batch; only with
                   record_samples=tokens, or where the loss needs them

    An untrained rollout has no line. `complete` adds missing logprobs of the learner; all ranks call it and share the
    work.
    """

    file: ResumableJsonl
    is_first: bool
    complete: SampleTransform | None = None

    def __call__(self, samples: Sequence[TrainingSample]) -> None:
        """Record the samples that have a trajectory's id. Raises RunError if the disk refuses them."""
        named = [sample for sample in samples if sample.id and any(sample.loss_mask)]
        # the sampler's record itself is not the learner's, even if equal
        named = [replace(s, old_logprobs=None) if s.old_logprobs is s.rollout_logprobs else s for s in named]
        if self.complete is not None and (missing := [s for s in named if s.old_logprobs is None]):
            found = iter(self.complete(missing))
            named = [next(found) if sample.old_logprobs is None else sample for sample in named]
        if self.is_first and named:
            rollouts = groupby(named, key=attrgetter("id"))
            self.file.append(_row(id, list(branches)) for id, branches in rollouts)


def _row(id: str, branches: Sequence[TrainingSample]) -> Mapping[str, object]:
    advantages = [value for sample in branches for value in compress(sample.advantages, sample.loss_mask)]
    same = len(set(advantages)) == 1
    row: dict[str, object] = {"id": id, "advantages": advantages[0] if same else advantages}
    if any(sample.old_logprobs is None for sample in branches):
        return row
    return {**row, "old_logprobs": [v for s in branches for v in compress(s.old_logprobs or (), s.loss_mask)]}
