"""From TrainingSamples to micro-batches of bounded size."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch.nn.utils.rnn import pad_sequence

from evoseek.errors import TrainingError
from evoseek.learner.distributed import Ranks
from evoseek.learner.row import Branch, Row, lay_out, trained_length, tree_order
from evoseek.loss.base import LossInputs
from evoseek.policy.sharing import SHARED
from evoseek.types import TrainingSample

__all__ = ["MicroBatch", "loss_inputs", "make_batch", "smaller_budget", "split_by_tokens", "trained_length"]

PADDING = 0  # any valid id: in a causal model, real tokens never attend to padding on their right


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """B samples, padded on the right to T tokens; `weights` and `has_old` are [B], all else [B, T].

    `old_logprobs` are the sampler's if a sample has none (`has_old` says which ones have them), `values` and `returns`
    0; `ref_logprobs` are None unless every sample has them. `row` is the same tokens without padding, where a sample
    shares its beginning with the one before it.
    """

    token_ids: torch.Tensor
    loss_mask: torch.Tensor
    rollout_logprobs: torch.Tensor
    old_logprobs: torch.Tensor
    has_old: torch.Tensor
    advantages: torch.Tensor
    values: torch.Tensor
    returns: torch.Tensor
    ref_logprobs: torch.Tensor | None
    weights: torch.Tensor
    row: Row


def loss_inputs(
    batch: MicroBatch, logprobs: torch.Tensor, entropies: torch.Tensor, *, ratio_to_own: bool
) -> LossInputs:
    """What a policy's loss is given of a batch, for logprobs and entropies [B, T] computed now. The ratio of samples
    without `old_logprobs` is taken to the sampler's record, or with `ratio_to_own` to these logprobs."""
    old = batch.old_logprobs
    if ratio_to_own:
        old = torch.where(batch.has_old.unsqueeze(-1), old, logprobs.detach())
    return LossInputs(
        logprobs=logprobs,
        rollout_logprobs=batch.rollout_logprobs,
        old_logprobs=old,
        advantages=batch.advantages,
        loss_mask=batch.loss_mask,
        weights=batch.weights,
        entropies=entropies,
        ref_logprobs=batch.ref_logprobs,
    )


def split_by_tokens(
    samples: Sequence[TrainingSample], token_budget: int, limit: int = sys.maxsize
) -> list[list[TrainingSample]]:
    """Samples in lists whose rows have at most `token_budget` tokens, a beginning that several share counted once.

    Samples come in the order of their prefix tree, so that those with much in common are neighbours; longest first, so
    that a model that needs padded rows pads little. Neighbours with the same prompt (the tokens before the first
    action) stay together if one list can hold them. A sample longer than the budget gets its own list; one without
    actions gets none. Samples longer than `limit`, which a model cannot pack, come first, in lists of their own, and
    share nothing. The same samples in the same order always give the same lists.
    """
    trained = [(sample, sample.token_ids[:length]) for sample in samples if (length := trained_length(sample))]
    long = sorted((pair for pair in trained if len(pair[1]) > limit), key=lambda pair: -len(pair[1]))
    packed = [pair for pair in trained if len(pair[1]) <= limit]
    packed = [packed[number] for number in tree_order([ids for _, ids in packed])]
    return _fill(long, token_budget, sys.maxsize) + _fill(packed, token_budget, SHARED)


def _fill(
    samples: Sequence[tuple[TrainingSample, tuple[int, ...]]], token_budget: int, shortest: int
) -> list[list[TrainingSample]]:
    """The samples with their trained tokens, in this order, in lists as `split_by_tokens` gives them."""
    batches: list[list[TrainingSample]] = []
    row, used = Branch(shortest), math.inf
    for _, family in groupby(samples, key=lambda pair: pair[0].token_ids[: pair[0].loss_mask.index(True)]):
        members = list(family)
        ahead = replace(row)
        together = used + sum(len(ids) - ahead.grow(ids) for _, ids in members) <= token_budget
        for number, (sample, ids) in enumerate(members):
            added = len(ids) - row.grow(ids)
            if used + added > token_budget or (number == 0 and not together):
                batches.append([])
                row, used, added = Branch(shortest, ids), 0, len(ids)
            batches[-1].append(sample)
            used += added
    return batches


def make_batch(samples: Sequence[TrainingSample], device: torch.device) -> MicroBatch:
    """One micro-batch of the samples, each cut after its last action token; its rows are in the order of the samples.

    Raises TrainingError if a sample's first token is an action.
    """
    lengths = [trained_length(sample) for sample in samples]

    def stack(rows: Sequence[Sequence[float] | None], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        cut = [(row or (0.0,) * n)[:n] for row, n in zip(rows, lengths, strict=True)]
        return pad_sequence([torch.tensor(row, dtype=dtype) for row in cut], batch_first=True).to(device)

    references = [sample.ref_logprobs for sample in samples]
    return MicroBatch(
        token_ids=stack([sample.token_ids for sample in samples], torch.long),
        loss_mask=stack([sample.loss_mask for sample in samples], torch.bool),
        rollout_logprobs=stack([sample.rollout_logprobs for sample in samples]),
        old_logprobs=stack([sample.old_logprobs or sample.rollout_logprobs for sample in samples]),
        has_old=torch.tensor([sample.old_logprobs is not None for sample in samples], device=device),
        advantages=stack([sample.advantages for sample in samples]),
        values=stack([sample.values for sample in samples]),
        returns=stack([sample.returns for sample in samples]),
        ref_logprobs=None if None in references else stack(references),
        weights=torch.tensor([sample.weight for sample in samples], dtype=torch.float32, device=device),
        row=lay_out([sample.token_ids[:n] for sample, n in zip(samples, lengths, strict=True)], device),
    )


def smaller_budget(
    token_budget: int, parts: Sequence[Sequence[TrainingSample]], ranks: Ranks, message: str, *, remedy: str = ""
) -> int:
    """Half of a token budget that was too large for these micro-batches.

    Raises TrainingError, with `message` and the remedies (`remedy`, which ends in ", ", is one more), if that would
    not help: the largest micro-batch is a single sample, or other ranks are in the midst of the same passes.
    """
    largest = max(len(part) for part in parts)
    if largest == 1 or ranks.size > 1:
        raise TrainingError(
            f"Memory ran out in a micro-batch of at most {token_budget} tokens and {largest} samples ({message}). "
            f"Lower learner.token_budget, {remedy}or limit the length of rollouts (rollout.max_total_tokens), and "
            "resume from the last checkpoint."
        ) from None
    return token_budget // 2
