"""From TrainingSamples to micro-batches of bounded size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence

from evoseek.learner.row import Row, find_families, lay_out, trained_length
from evoseek.types import TrainingSample

__all__ = ["MicroBatch", "make_batch", "split_by_tokens", "trained_length"]

PADDING = 0  # any valid id: in a causal model, real tokens never attend to padding on their right


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """B samples, padded on the right to T tokens; `weights` and `has_old` are [B], all else [B, T].

    `old_logprobs` are the sampler's if a sample has none (`has_old` says which ones have them), `values` and `returns`
    0; `ref_logprobs` are None unless every sample has them. `row` is the same tokens without padding.
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


def split_by_tokens(samples: Sequence[TrainingSample], token_budget: int) -> list[list[TrainingSample]]:
    """Samples in lists whose rows have at most `token_budget` tokens, a prompt that several share counted once.

    Samples that share a prompt stay together if one list can hold them. A sample longer than the budget gets its own
    list; one without actions gets none. Longest first, so that a model that needs padded rows pads little. The sort is
    stable: the same samples in the same order always give the same lists.
    """
    lengths = [trained_length(sample) for sample in samples]
    families = find_families(samples)
    families.sort(key=lambda family: -max(lengths[member] for member in family.members))
    batches: list[list[TrainingSample]] = []
    used: float = math.inf
    for family in families:
        added = [lengths[member] - family.shared for member in family.members]
        used += family.shared
        together = used + sum(added) <= token_budget
        for number, (member, tokens) in enumerate(zip(family.members, added, strict=True)):
            if used + tokens > token_budget or (number == 0 and not together):
                batches.append([])
                used = family.shared
            batches[-1].append(samples[member])
            used += tokens
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
        row=lay_out(
            [sample.token_ids[:n] for sample, n in zip(samples, lengths, strict=True)], find_families(samples), device
        ),
    )
