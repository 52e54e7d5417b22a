"""Wraps any loss: importance weights inside, a KL term and an entropy bonus outside."""

from __future__ import annotations

from evoseek.loss.aggregate import Aggregate
from evoseek.loss.base import LossFn, LossInputs
from evoseek.loss.entropy import WithEntropy
from evoseek.loss.importance import Level, WithImportance
from evoseek.loss.kl import WithKL
from evoseek.loss.settings import AlgorithmSettings


def wrapped(loss: LossFn[LossInputs], settings: AlgorithmSettings) -> LossFn[LossInputs]:
    """The loss with the terms that are switched on. KL and entropy are aggregated as the loss aggregates its tokens."""
    aggregate: Aggregate = getattr(loss, "aggregate", "token-mean")
    loss = corrected(loss, settings)
    if settings.kl_in == "loss" and settings.kl_coefficient > 0:
        loss = WithKL(loss, settings.kl_coefficient, settings.kl_estimator, aggregate)
    if settings.entropy_coefficient > 0:
        loss = WithEntropy(loss, settings.entropy_coefficient, aggregate)
    return loss


def corrected(loss: LossFn[LossInputs], settings: AlgorithmSettings) -> LossFn[LossInputs]:
    """The loss with importance weights, if they are switched on, and nothing else."""
    if settings.importance == "none":
        return loss
    level: Level = getattr(loss, "level", "token")
    cap = settings.importance_cap
    low = 1.0 / cap if settings.importance == "mask" else 0.0
    return WithImportance(loss, level=level, outside=settings.importance, low=low, high=cap)
