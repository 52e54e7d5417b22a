"""From TrainingSamples to padded micro-batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence

from evoseek.errors import TrainingError
from evoseek.types import TrainingSample

PADDING = 0  # any valid id: a causal model's real tokens never see what is to their right


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """B samples, each a row of its own, padded on the right to T tokens; `weights` is [B], all else [B, T]."""

    token_ids: torch.Tensor
    loss_mask: torch.Tensor
    rollout_logprobs: torch.Tensor
    advantages: torch.Tensor
    weights: torch.Tensor


def trained_length(sample: TrainingSample) -> int:
    """Number of tokens up to the last action token (0 if there is none). What follows cannot matter to the loss.

    Raises TrainingError if the very first token is an action: nothing precedes it, so it has no logprob.
    """
    if sample.loss_mask and sample.loss_mask[0]:
        raise TrainingError(
            "A training sample's first token is marked as an action, but a token's logprob needs a context: "
            f"put a prompt of at least one token before it (role {sample.role!r}, group {sample.group!r})."
        )
    for position in range(len(sample.loss_mask) - 1, -1, -1):
        if sample.loss_mask[position]:
            return position + 1
    return 0


def split_by_tokens(samples: Sequence[TrainingSample], token_budget: int) -> list[list[TrainingSample]]:
    """Samples sorted by trained length, longest first, cut into lists whose padded size is at most `token_budget`.

    Rows of like length leave little padding. A sample longer than the budget gets a list of its own. The sort is
    stable, so the same samples in the same order always give the same micro-batches.
    """
    ordered = sorted(((trained_length(sample), sample) for sample in samples), key=lambda pair: -pair[0])
    batches: list[list[TrainingSample]] = []
    longest = 0
    for length, sample in ordered:
        if not batches or (len(batches[-1]) + 1) * longest > token_budget:
            batches.append([])
            longest = length
        batches[-1].append(sample)
    return batches


def pad(samples: Sequence[TrainingSample], device: torch.device) -> MicroBatch:
    """One micro-batch of the samples, each cut after its last action token."""
    lengths = [trained_length(sample) for sample in samples]
    pairs = list(zip(samples, lengths, strict=True))

    def stack(rows: Iterable[Sequence[float]], dtype: torch.dtype, fill: float) -> torch.Tensor:
        tensors = [torch.tensor(row, dtype=dtype) for row in rows]
        return pad_sequence(tensors, batch_first=True, padding_value=fill).to(device)

    return MicroBatch(
        token_ids=stack((sample.token_ids[:n] for sample, n in pairs), torch.long, PADDING),
        loss_mask=stack((sample.loss_mask[:n] for sample, n in pairs), torch.bool, False),
        rollout_logprobs=stack((sample.rollout_logprobs[:n] for sample, n in pairs), torch.float32, 0.0),
        advantages=stack((sample.advantages[:n] for sample, n in pairs), torch.float32, 0.0),
        weights=torch.tensor([sample.weight for sample in samples], dtype=torch.float32, device=device),
    )
