"""A learner from keywords, whatever the bounds of settings are."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from evoseek.learner.distributed import ALONE, Ranks
from evoseek.learner.learner import Learner, LearnerContext, OptimizerFactory
from evoseek.learner.optim import adamw
from evoseek.learner.settings import BETAS, WEIGHT_DECAY, LearnerSettings


def learner_of(
    forward: Any,
    *,
    loss: Any,
    optimizer: OptimizerFactory = adamw,
    weight_decay: float = WEIGHT_DECAY,
    betas: tuple[float, float] = BETAS,
    total_steps: int | None = None,
    ranks: Ranks = ALONE,
    dump: Path | None = None,
    active: Callable[[], AbstractContextManager[object]] = nullcontext,
    **settings: Any,
) -> Learner[Any]:
    """The learner of a forward pass; `settings` are those of LearnerSettings, with micro-batches of 8192 tokens."""
    context = LearnerContext(forward, loss, total_steps=total_steps, ranks=ranks, dump=dump, active=active)
    own = LearnerSettings.model_construct(**{"token_budget": 8192, **settings})
    return Learner(own, context, partial(optimizer, weight_decay=weight_decay, betas=betas))
