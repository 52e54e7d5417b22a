"""Drawing one token per row from logits."""

from __future__ import annotations

import torch
from torch import Tensor


def draw_tokens(logits: Tensor, temperatures: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """One token per row by inverse CDF, and its logprob under the distribution that was drawn from.

    logits: [B, V]; temperatures, uniforms: [B], float32. Gives ids [B] and logprobs [B] (float32). A temperature of 0
    takes the most probable token and gives its logprob at temperature 1. The sum runs in float64: in float32 rare
    tokens of a large vocabulary would be drawn too often or never.
    """
    greedy = temperatures == 0
    logprobs = torch.log_softmax(logits.float() / temperatures.masked_fill(greedy, 1.0)[:, None], dim=-1)  # [B, V]
    cumulative = logprobs.exp().cumsum(dim=-1, dtype=torch.float64)
    targets = uniforms.double()[:, None] * cumulative[:, -1:]
    # right=True: the first token whose cumulative probability exceeds the target, hence never one of probability 0
    ids = torch.searchsorted(cumulative, targets, right=True).clamp_(max=logits.shape[-1] - 1)  # [B, 1]
    ids = torch.where(greedy[:, None], logprobs.argmax(dim=-1, keepdim=True), ids)
    return ids.squeeze(1), logprobs.gather(1, ids).squeeze(1)
