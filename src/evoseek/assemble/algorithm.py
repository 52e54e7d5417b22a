"""From a config to an algorithm: its loss and its credit."""

from __future__ import annotations

from functools import partial

from evoseek.config import Config
from evoseek.credit.group import group_advantages
from evoseek.credit.reinforce import raw_advantages, whitened_advantages
from evoseek.credit.rloo import leave_one_out_advantages
from evoseek.loss.aggregate import FixedLength
from evoseek.loss.base import LossFn, LossInputs
from evoseek.loss.clipped import ClippedLoss
from evoseek.loss.entropy import WithEntropy
from evoseek.loss.importance import WithImportance
from evoseek.loss.kl import WithKL
from evoseek.loss.reinforce import ReinforceLoss
from evoseek.loss.sequence import SequenceLoss
from evoseek.training.update import Credit


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
