"""From a config to a training run: the only place that knows which setting of the algorithm goes where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypedDict, cast

from transformers import PreTrainedModel

from evoseek.assemble import (
    Agent,
    Solver,
    evaluation_setting,
    evaluation_temperature,
    load_trainable,
    open_index,
    read_questions,
)
from evoseek.config import MAY_DIFFER_ON_RESUME, Config
from evoseek.credit.group import group_advantages
from evoseek.credit.reinforce import raw_advantages, whitened_advantages
from evoseek.credit.rloo import leave_one_out_advantages
from evoseek.errors import ConfigError
from evoseek.eval.evaluate import Evaluation, Result
from evoseek.learner.checkpoint import Checkpoint, Part, latest_checkpoint
from evoseek.learner.checkpointing import checkpoint_activations
from evoseek.learner.distributed import ALONE, Ranks
from evoseek.learner.learner import Learner
from evoseek.learner.logprobs import LogprobModel
from evoseek.learner.reference import Scoring, with_old_logprobs, with_ref_logprobs, with_values
from evoseek.learner.sharding import copy_weights, full_state_dict, shard_module
from evoseek.learner.values import ValueModel
from evoseek.loss.aggregate import FixedLength
from evoseek.loss.base import LossFn, LossInputs, ValueInputs
from evoseek.loss.clipped import ClippedLoss
from evoseek.loss.entropy import WithEntropy
from evoseek.loss.importance import WithImportance
from evoseek.loss.kl import WithKL
from evoseek.loss.reinforce import ReinforceLoss
from evoseek.loss.sequence import SequenceLoss
from evoseek.loss.value import ValueLoss
from evoseek.policy.critic import load_critic, save_critic
from evoseek.policy.load import load_policy, save_policy
from evoseek.policy.policy import Policy, base_of
from evoseek.report.metrics import JsonlMetrics, NoMetrics
from evoseek.reward.functions import AnswerReward
from evoseek.rollout.record import TrajectoryWriter
from evoseek.rollout.trajectory_json import (
    outcome_from_json,
    outcome_to_json,
    trajectory_from_json,
    trajectory_to_json,
)
from evoseek.runs import RunDirectory
from evoseek.systems.dspo import DSPO
from evoseek.systems.ppo import PPOUpdate
from evoseek.systems.question_order import questions_of_step
from evoseek.systems.run_state import RunState, resume
from evoseek.systems.search_r1 import QuestionRollouts, SearchR1
from evoseek.systems.training import Evaluate, TrainingLoop
from evoseek.systems.update import Completion, Credit, GroupUpdate, KLPenalty, Update
from evoseek.types import Question


def training_loop(
    config: Config, run: RunDirectory, *, notify: Callable[[str], None], ranks: Ranks = ALONE
) -> TrainingLoop:
    """A training loop ready to run; it goes on from the run's last checkpoint if it has one.

    Everything is opened and checked before the config is claimed for the directory, so a mistake leaves no trace. The
    caller holds the run's lock. `notify` is told what the model's chat template can do. Every one of `ranks` makes its
    own loop of the same config; they work as one.
    """
    _check(config, ranks)
    checkpoint = latest_checkpoint(run.path, ranks=ranks)
    agent = Agent.load(config, checkpoint=checkpoint, device=str(ranks.device))
    if notice := agent.template_notice():
        notify(notice)
    solver = agent.solver(open_index(config.search.index, setting="search.index"))
    questions = read_questions(config.questions.path, setting="questions.path")
    _check_prompt(solver, questions_of_step(questions, seed=config.run.seed, step=1, size=config.questions.per_step)[0])
    held_out = evaluation_setting(config, agent)
    if ranks.is_first:
        run.claim(config.resolved(), may_differ=MAY_DIFFER_ON_RESUME)
    trained = Trained.load(config, agent.policy, run, checkpoint, ranks)
    start = resume(run, checkpoint, trained.parts, ranks)
    agent.sampler.policy_version = start
    rollouts, publish = _rollouts(config, solver, run, ranks), partial(_publish, trained, agent)
    per_step, limit = config.questions.per_step, config.algorithm.filter_limit
    if limit:
        system = DSPO(questions, rollouts, trained.update(), publish, per_step, limit=limit)
    else:
        system = SearchR1(questions, rollouts, trained.update(), publish, per_step)
    return TrainingLoop(
        system=system,
        checkpoints=RunState(run, trained.parts, keep_last=config.run.keep_checkpoints, ranks=ranks),
        metrics=JsonlMetrics(run.metrics) if ranks.is_first else NoMetrics(),
        timings=JsonlMetrics(run.timings) if ranks.is_first else NoMetrics(),
        start=start,
        steps=config.run.steps,
        checkpoint_every=config.run.checkpoint_every,
        evaluate=held_out and _evaluate_with(*held_out, temperature=evaluation_temperature(config), ranks=ranks),
        evaluate_every=config.evaluation.every,
        max_invalid=config.run.max_invalid,
        agree=ranks.any,
    )


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
        algorithm, seed = self.config.algorithm, self.config.run.seed
        in_reward = algorithm.kl_in == "reward" and algorithm.kl_coefficient > 0
        penalty = KLPenalty(algorithm.kl_coefficient) if in_reward else None
        completions = self._completions()
        if self.critic is None:
            return GroupUpdate(
                learner=self.learner,
                credit=_credit(self.config),
                seed=seed,
                mini_batches=algorithm.mini_batches,
                completions=completions,
                penalty=penalty,
                mask_observations=algorithm.mask_observations,
            )
        critic = self.config.critic
        return PPOUpdate(
            learner=self.learner,
            critic=self.critic,
            predict=partial(with_values, forward=self.critic.forward, **self._scoring(self.policy)),
            seed=seed,
            gamma=critic.gamma,
            lam=critic.lam,
            mini_batches=algorithm.mini_batches,
            policy_after=critic.policy_after,
            completions=completions,
            penalty=penalty,
            mask_observations=algorithm.mask_observations,
        )

    def _completions(self) -> list[Completion]:
        """What the loss needs besides the sampler's logprobs."""
        algorithm, own = self.config.algorithm, self.learner.forward
        completions: list[Completion] = []
        if algorithm.importance != "none" or not algorithm.mask_observations:
            completions.append(partial(with_old_logprobs, forward=own, **self._scoring(self.policy)))
        if algorithm.kl_coefficient > 0 and self.policy.adapter is not None:
            completions.append(partial(with_ref_logprobs, forward=own, **self._scoring(base_of(self.policy))))
        elif algorithm.kl_coefficient > 0:
            settings = self.config.policy
            frozen = load_policy(settings.model, device=str(self.ranks.device), dtype=settings.dtype)
            forward = LogprobModel(frozen.model.requires_grad_(False), temperature=self.config.rollout.temperature)
            completions.append(partial(with_ref_logprobs, forward=forward, **self._scoring(frozen)))
        return completions

    def _scoring(self, policy: Policy) -> Scoring:
        settings, ranks = self.config.learner, self.ranks
        return {"token_budget": settings.token_budget, "bf16": settings.bf16, "ranks": ranks, "active": policy.active}

    def _save_policy(self, directory: Path) -> None:
        weights = full_state_dict(self.policy.model, self.ranks) if self.ranks.size > 1 else None
        if self.ranks.is_first:
            save_policy(self.policy, directory, state_dict=weights)

    def _save_critic(self, directory: Path) -> None:
        model = cast("Learner[ValueInputs]", self.critic).model
        weights = full_state_dict(model, self.ranks) if self.ranks.size > 1 else None
        if self.ranks.is_first:
            save_critic(cast("PreTrainedModel", model), directory, state_dict=weights)


def make_learner(
    config: Config, policy: Policy, *, dump: Path | None = None, ranks: Ranks = ALONE
) -> Learner[LossInputs]:
    """The learner of a policy, with the algorithm's loss."""
    forward = LogprobModel(
        policy.model,
        temperature=config.rollout.temperature,
        entropy_gradient=config.algorithm.entropy_coefficient > 0,
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


def make_loss(config: Config) -> LossFn[LossInputs]:
    """The policy's loss: a surrogate, and around it what is switched on."""
    algorithm = config.algorithm
    given = algorithm.aggregate
    aggregate = FixedLength(given) if isinstance(given, int) else given
    loss: LossFn[LossInputs]
    match algorithm.loss:
        case "clipped":
            loss = ClippedLoss(algorithm.clip_low, algorithm.clip_high, aggregate)
        case "sequence":
            loss = SequenceLoss(algorithm.clip_low, algorithm.clip_high)
        case "reinforce":
            loss = ReinforceLoss(aggregate)
    if algorithm.importance != "none":
        cap = algorithm.importance_cap
        level = "sequence" if algorithm.loss == "sequence" else "token"
        low = 1.0 / cap if algorithm.importance == "mask" else 0.0
        loss = WithImportance(loss, level=level, outside=algorithm.importance, low=low, high=cap)
    if algorithm.kl_in == "loss" and algorithm.kl_coefficient > 0:
        loss = WithKL(loss, algorithm.kl_coefficient, algorithm.kl_estimator, aggregate)
    if algorithm.entropy_coefficient > 0:
        loss = WithEntropy(loss, algorithm.entropy_coefficient, aggregate)
    return loss


def _credit(config: Config) -> Credit:
    match config.algorithm.advantage:
        case "leave-one-out":
            return leave_one_out_advantages
        case "raw":
            return lambda rewards, _: raw_advantages(rewards)
        case "whitened":
            return lambda rewards, _: whitened_advantages(rewards)
        case _:
            return partial(group_advantages, scale=config.algorithm.scale)


def _rollouts(config: Config, solver: Solver, run: RunDirectory, ranks: Ranks) -> QuestionRollouts:
    return QuestionRollouts(
        env=solver.env,
        renderer=solver.renderer,
        sampler=solver.agent.sampler,
        limits=solver.agent.limits,
        reward=AnswerReward(config.reward.metric),
        trajectories=TrajectoryWriter(run.trajectories, solver.agent.decode),
        seed=config.run.seed,
        group_size=config.rollout.group_size,
        temperature=config.rollout.temperature,
        ranks=ranks,
    )


def _publish(trained: Trained, agent: Agent, step: int) -> None:
    """Let the sampler go on with the weights of a step."""
    if trained.policy.model is not agent.policy.model:
        copy_weights(trained.policy.model, agent.policy.model)
    agent.sampler.policy_version = step
    agent.sampler.reset()


def _evaluate_with(solver: Solver, questions: list[Question], *, temperature: float, ranks: Ranks) -> Evaluate:
    async def evaluate_now(step: int) -> Mapping[str, float]:
        own = await solver.evaluate(questions[ranks.rank :: ranks.size], temperature=temperature)
        return (own if ranks.size == 1 else _together(own, ranks)).metrics()

    return evaluate_now


def _together(evaluation: Evaluation, ranks: Ranks) -> Evaluation:
    """All of the results, on every rank, from each one's share."""
    own = [(trajectory_to_json(r.trajectory, lambda _: ""), outcome_to_json(r.outcome)) for r in evaluation.results]
    pairs = (pair for share in ranks.gather(own) for pair in share)
    results = ((trajectory_from_json(trajectory), outcome_from_json(outcome)) for trajectory, outcome in pairs)
    return replace(evaluation, results=tuple(Result(t.question, t, outcome) for t, outcome in results))


def _check(config: Config, ranks: Ranks) -> None:
    """Settings that are each possible, but not together. Raises ConfigError."""
    algorithm = config.algorithm
    if config.policy.dtype != "float32" and not config.lora.rank:
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
    if algorithm.advantage == "gae" and algorithm.filter_limit:
        raise ConfigError(
            f"algorithm.filter_limit is {algorithm.filter_limit}, which keeps only groups whose rewards differ, but "
            "algorithm.advantage is gae: a critic must see the others too. Set algorithm.filter_limit to 0."
        )
    if not algorithm.mask_observations and algorithm.kl_in == "reward" and algorithm.kl_coefficient > 0:
        raise ConfigError(
            "algorithm.mask_observations is false and algorithm.kl_in is reward, but the sampler knows no logprobs of "
            "tool results to take a KL from. Set algorithm.kl_in to loss, or mask the observations."
        )
    if algorithm.loss == "reinforce" and algorithm.mini_batches > 1:
        raise ConfigError(
            f"algorithm.loss is reinforce, whose gradient is right for tokens of the current policy alone, but "
            f"algorithm.mini_batches is {algorithm.mini_batches}. Set it to 1, or algorithm.loss to clipped."
        )


def _check_prompt(solver: Solver, question: Question) -> None:
    length = len(solver.renderer.render_prompt(solver.env.messages(question)))
    longest = solver.agent.limits.max_total_tokens
    if length >= longest:
        raise ConfigError(
            f"The prompt of question {question.id} has {length} tokens, but rollout.max_total_tokens is {longest}: no "
            "room is left to answer. Raise rollout.max_total_tokens, or shorten the prompt or the question."
        )
