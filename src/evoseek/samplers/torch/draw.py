"""Draws one token per row from logits, with random numbers that depend on their purpose and never on time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_BLOCK = 64  # tokens
_ROWS = 4


def turn_uniforms(seed: int, trajectory_id: str, turn: int, count: int) -> list[float]:
    """Return the first `count` uniforms in [0, 1) of the stream of (run seed, trajectory, turn), one per sampled token.

    The counter-based generator Philox is keyed by a BLAKE2b digest of the three, so streams are independent of each
    other and of the order of arrival. The values have 53 bits, like float64: 24 from the stream itself and 29 from the
    stream 2^128 draws ahead.
    """
    name = f"{seed}\x00{trajectory_id}\x00{turn}".encode()
    key = np.frombuffer(hashlib.blake2b(name, digest_size=16).digest(), dtype=np.uint64)
    stream = np.random.Philox(key=key)
    low = np.random.Generator(stream.jumped()).integers(1 << 29, size=count)
    high = np.random.Generator(stream).random(count, dtype=np.float32)
    return (high + low * 2.0**-53).tolist()


def draw_tokens(
    logits: Tensor, temperatures: Tensor, uniforms: Tensor, given: Sequence[int | None] = ()
) -> tuple[Tensor, Tensor]:
    """Draw one token per row by inverse CDF; return ids [B] and logprobs [B] (float32) under the sampled distribution.

    logits: [B, V]; temperatures: [B], float32; uniforms: [B], float64. Temperature 0 takes the most probable token and
    returns its logprob at temperature 1. `given`, if set, has the forced token for each row, or None for rows that
    draw. Probabilities are summed in blocks, and one by one only in the block of the draw. All sums and uniforms are
    float64: in float32, rare tokens of a large vocabulary would be drawn too often or never.
    """
    greedy = temperatures == 0
    logprobs = torch.log_softmax(logits.float() / temperatures.masked_fill(greedy, 1.0)[:, None], dim=-1)  # [B, V]
    ids = _invert(logprobs, uniforms.double())
    if bool(greedy.any()):
        ids = torch.where(greedy, logprobs.argmax(dim=-1), ids)
    for row, token in enumerate(given):
        if token is not None:
            ids[row] = token
    return ids, logprobs.gather(1, ids[:, None]).squeeze(1)


def _invert(logprobs: Tensor, uniforms: Tensor) -> Tensor:
    """Return the first token [B] whose cumulative probability exceeds the share `uniforms` [B] of the sum."""
    rows, vocabulary = logprobs.shape
    blocks = logprobs.new_empty(rows, -(-vocabulary // _BLOCK), _BLOCK)
    blocks[:, -1] = 0
    torch.exp(logprobs, out=blocks.flatten(1)[:, :vocabulary])
    parts = [part.double().sum(dim=-1) for part in blocks.split(_ROWS)]  # a float64 copy of all would be slow
    sums = torch.cat(parts).cumsum(dim=-1)  # [B, blocks]
    targets = uniforms[:, None] * sums[:, -1:]
    # right=True: the first whose cumulative probability exceeds the target, hence never one of probability 0
    block = torch.searchsorted(sums, targets, right=True).clamp_(max=blocks.shape[1] - 1)  # [B, 1]
    below = torch.where(block > 0, sums.gather(1, (block - 1).clamp_(min=0)), 0.0)
    within = blocks[torch.arange(rows, device=block.device), block[:, 0]].double().cumsum(dim=-1)
    # rounding may put the target at the end of the block's sum, where its last tokens may have probability 0
    last = torch.nextafter(within[:, -1:], within.new_zeros(()))
    token = torch.searchsorted(within, torch.minimum(targets - below, last), right=True)
    return (block * _BLOCK + token).squeeze(1).clamp_(max=vocabulary - 1)
