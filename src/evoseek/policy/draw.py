"""Drawing one token per row from logits."""

from __future__ import annotations

import torch
from torch import Tensor

_BLOCK = 64  # tokens


def draw_tokens(logits: Tensor, temperatures: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """One token per row by inverse CDF, and its logprob under the distribution that was drawn from.

    logits: [B, V]; temperatures: [B], float32; uniforms: [B], float64. Gives ids [B] and logprobs [B] (float32). A
    temperature of 0 takes the most probable token and gives its logprob at temperature 1. Probabilities are summed in
    blocks, one by one only in the block that the draw falls in. All sums and uniforms are float64: in float32 rare
    tokens of a large vocabulary would be drawn too often or never.
    """
    greedy = temperatures == 0
    logprobs = torch.log_softmax(logits.float() / temperatures.masked_fill(greedy, 1.0)[:, None], dim=-1)  # [B, V]
    ids = _invert(logprobs, uniforms.double())
    if bool(greedy.any()):
        ids = torch.where(greedy, logprobs.argmax(dim=-1), ids)
    return ids, logprobs.gather(1, ids[:, None]).squeeze(1)


def _invert(logprobs: Tensor, uniforms: Tensor) -> Tensor:
    """The first token [B] up to which the probabilities add up to more than a share `uniforms` [B] of their sum."""
    rows, vocabulary = logprobs.shape
    blocks = logprobs.new_empty(rows, -(-vocabulary // _BLOCK), _BLOCK, dtype=torch.float64)
    blocks[:, -1] = 0
    torch.exp(logprobs, out=blocks.flatten(1)[:, :vocabulary])
    sums = blocks.sum(dim=-1).cumsum(dim=-1)  # [B, blocks]
    targets = uniforms[:, None] * sums[:, -1:]
    # right=True: the first whose cumulative probability exceeds the target, hence never one of probability 0
    block = torch.searchsorted(sums, targets, right=True).clamp_(max=blocks.shape[1] - 1)  # [B, 1]
    below = torch.where(block > 0, sums.gather(1, (block - 1).clamp_(min=0)), 0.0)
    within = blocks[torch.arange(rows, device=block.device), block[:, 0]].cumsum(dim=-1)
    # rounding may put the target at the end of the block's sum, past which its last tokens of probability 0 lie
    last = torch.nextafter(within[:, -1:], within.new_zeros(()))
    token = torch.searchsorted(within, torch.minimum(targets - below, last), right=True)
    return (block * _BLOCK + token).squeeze(1).clamp_(max=vocabulary - 1)
