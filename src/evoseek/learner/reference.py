"""Scoring samples with frozen models: a reference's logprobs, the learner's own before a step, a critic's values.

No gradient is recorded and no weight is touched. The reference may be a separate model, or the model that is trained
with its adapters switched off (`active=base_of(policy).active`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Literal, Protocol, runtime_checkable

import torch

from evoseek.learner.batch import make_batch, smaller_budget, split_by_tokens
from evoseek.learner.distributed import ALONE, Ranks
from evoseek.learner.learner import Forward
from evoseek.loss.base import LossInputs, ValueInputs
from evoseek.types import TrainingSample

AnyForward = Forward[LossInputs] | Forward[ValueInputs]
TokenValues = list[list[float]]


@runtime_checkable
class Scorer(Protocol):
    """A forward pass that is made elsewhere, of all samples at once."""

    def score(self, samples: Sequence[TrainingSample]) -> list[tuple[float, ...]]:
        """Of each sample the values of its T tokens, 0.0 off the mask."""
        ...


def score(
    forward: AnyForward,
    samples: Sequence[TrainingSample],
    *,
    token_budget: int,
    bf16: bool = False,
    ranks: Ranks = ALONE,
    active: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> list[tuple[float, ...]]:
    """For each sample, in order, the model's values at its T tokens: logprobs (of a policy, at the forward pass's
    temperature) or values (of a critic); 0.0 off the mask.

    token_budget: tokens of a micro-batch at most. bf16: matrix products in bfloat16, as the learner's. ranks: the
    processes that share the work, of which each gets all the results. active: entered around the passes; the `active`
    method of a policy that shares its model with others.

    When memory runs out, the micro-batches are halved and all is scored again. Raises TrainingError if a single sample
    does not fit into memory, or memory runs out on one of several ranks.
    """
    if isinstance(forward, Scorer):
        with active():
            return forward.score(samples)
    while True:
        parts = split_by_tokens(samples, token_budget, forward.packing_limit)
        dealt = ranks.deal(parts)
        try:
            with torch.no_grad(), active():
                scored = [_score_part(forward, part, bf16) for part, _ in dealt]
            break
        except torch.OutOfMemoryError as error:
            token_budget = smaller_budget(token_budget, parts, ranks, str(error))
        torch.cuda.empty_cache()  # here the error, and with it the failed pass, is forgotten
    shares: list[list[TokenValues]] = ranks.gather(scored[: sum(counts for _, counts in dealt)])
    found: dict[int, list[float]] = {}
    for rank, rows in enumerate(shares):
        for part, values in zip(parts[rank :: ranks.size], rows, strict=True):
            found |= zip(map(id, part), values, strict=True)
    return [_padded(found.get(id(sample), []), len(sample.token_ids)) for sample in samples]


def with_scores(
    field: Literal["ref_logprobs", "old_logprobs", "values"],
    samples: Sequence[TrainingSample],
    forward: AnyForward,
    **how: Any,
) -> list[TrainingSample]:
    """The samples with what `score` gives as this field: `ref_logprobs` by a frozen reference policy, `old_logprobs` by
    the learner's own policy, or `values` by a critic. The last two are for before a batch's first step."""
    rows = score(forward, samples, **how)
    return [replace(sample, **{field: row}) for sample, row in zip(samples, rows, strict=True)]


def _score_part(forward: AnyForward, part: Sequence[TrainingSample], bf16: bool) -> TokenValues:
    device = next(forward.model.parameters()).device
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
        inputs = forward(make_batch(part, device))
    return (inputs.logprobs if isinstance(inputs, LossInputs) else inputs.predictions).tolist()


def _padded(row: Sequence[float], length: int) -> tuple[float, ...]:
    """A micro-batch's row, as long as its longest sample up to the last action, as a row of `length`."""
    return tuple(row[:length]) + (0.0,) * (length - len(row))
