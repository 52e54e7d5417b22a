"""Importance ratios between the learner's policy and the policy that sampled."""

from __future__ import annotations

import torch


def token_ratio(logprobs: torch.Tensor, rollout_logprobs: torch.Tensor, loss_mask: torch.Tensor) -> torch.Tensor:
    """exp(logprobs - rollout_logprobs) on the mask, exactly 1 (without gradient) off it: [B, T] -> [B, T].

    The difference is masked before the exponential, so that arbitrary values off the mask can neither overflow nor
    send a NaN back through the gradient.
    """
    return (logprobs - rollout_logprobs).masked_fill(~loss_mask, 0.0).exp()


def sequence_ratio(logprobs: torch.Tensor, rollout_logprobs: torch.Tensor, loss_mask: torch.Tensor) -> torch.Tensor:
    """exp(mean over the masked tokens of logprobs - rollout_logprobs), the geometric mean of the tokens' ratios.

    [B, T] -> [B] (GSPO, arXiv 2507.18071, eq. 7). Being a mean, it stays in range however long the sequence is. A
    sequence without any masked token has the ratio 1, without gradient.
    """
    difference = (logprobs - rollout_logprobs).masked_fill(~loss_mask, 0.0)
    return (difference.sum(dim=-1) / loss_mask.sum(dim=-1).clamp(min=1)).exp()
