"""From a config to an algorithm: its loss and its credit."""

from __future__ import annotations

from functools import partial

from evoseek.config import Config, Section
from evoseek.credit.group import group_advantages
from evoseek.credit.reinforce import raw_advantages, whitened_advantages
from evoseek.credit.rloo import leave_one_out_advantages
from evoseek.errors import ConfigError
from evoseek.loss.aggregate import FixedLength
from evoseek.loss.base import LossFn, LossInputs
from evoseek.loss.clipped import ClippedLoss
from evoseek.loss.entropy import WithEntropy
from evoseek.loss.importance import WithImportance
from evoseek.loss.kl import WithKL
from evoseek.loss.reinforce import ReinforceLoss
from evoseek.loss.sequence import SequenceLoss
from evoseek.systems.update import Credit


def check_settings(config: Config) -> None:
    """Settings that are each possible, but not together. Raises ConfigError."""
    algorithm = config.algorithm
    if algorithm.advantage == "gae" and algorithm.filter_limit:
        raise ConfigError(
            f"algorithm.filter_limit is {algorithm.filter_limit}, which keeps only groups whose rewards differ, but "
            "algorithm.advantage is gae: a critic must see the others too. Set algorithm.filter_limit to 0."
        )
    _check_foreign_settings(config)
    _check_overlong(config)
    if config.run.system in ("zerosearch", "deepresearcher") and algorithm.filter_limit:
        raise ConfigError(
            f"algorithm.filter_limit is {algorithm.filter_limit}, but {config.run.system} trains on all groups. Leave "
            "it at 0."
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


def _check_overlong(config: Config) -> None:
    longest, cache = config.reward.overlong_max, config.reward.overlong_cache
    if (longest is None) != (cache is None):
        raise ConfigError(
            f"reward.overlong_max is {longest or 'not set'} and reward.overlong_cache {cache or 'not set'}, but the "
            "penalty for overlong rollouts needs both. Set both, or leave both out."
        )
    if longest is not None and cache is not None and cache > longest:
        raise ConfigError(
            f"reward.overlong_cache is {cache}, more than reward.overlong_max, {longest}: every rollout would be "
            "overlong. Set reward.overlong_cache to a part of it, such as a fifth."
        )


def _check_foreign_settings(config: Config) -> None:
    """Settings of an engine that the system does not search."""
    owners = {"zerosearch": ("simulator", "zerosearch"), "deepresearcher": ("web", "browse", "reader")}
    for owner, sections in owners.items():
        for name in sections if config.run.system != owner else ():
            section: Section = getattr(config, name)
            if changed := section.changed():
                raise ConfigError(
                    f"{name}.{changed[0]} is set, but {config.run.system} does not use it. Leave it out, or train "
                    f"{owner}."
                )


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


def make_credit(config: Config) -> Credit:
    """The credit function of an algorithm without a critic."""
    match config.algorithm.advantage:
        case "leave-one-out":
            return leave_one_out_advantages
        case "raw":
            return lambda rewards, _: raw_advantages(rewards)
        case "whitened":
            return lambda rewards, _: whitened_advantages(rewards)
        case _:
            return partial(group_advantages, scale=config.algorithm.scale)


def make_proposer_credit(config: Config) -> Credit:
    """The proposer's credit function: HRPO or GRPO, by how its rollouts are grouped, or REINFORCE."""
    settings = config.proposer
    if settings.advantage == "raw":
        return lambda rewards, _: raw_advantages(rewards)
    return partial(group_advantages, scale=settings.scale, singleton=settings.singleton)


def make_proposer_loss(config: Config) -> LossFn[LossInputs]:
    """The proposer's loss: on-policy, without a ratio to clip."""
    return ReinforceLoss(config.proposer.aggregate)
