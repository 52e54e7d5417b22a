"""CISPO (MiniMax-M1, arXiv 2506.13585, eq. 4 and 5): the ratio is a weight, cut from above, and not differentiated.

    loss = - mean over tokens of stop_gradient(min(ratio_t, 1 + high)) A_t logprob_t

No token loses its gradient, as it does where a clipped loss cuts the ratio.
"""

from dataclasses import dataclass

from pydantic import Field

from evoseek.loss.aggregate import aggregate_tokens
from evoseek.loss.base import Loss, LossInputs, PolicyLoss, Totals
from evoseek.loss.ratio import token_ratio
from evoseek.loss.settings import LossSettings


@dataclass(frozen=True)
class CISPO(PolicyLoss):
    """A loss for the learner: of tensors [B, T], a scalar and metrics."""

    high: float = 0.28

    class Settings(LossSettings):
        """What stands in the table [loss] beside the name."""

        high: float = Field(default=0.28, gt=0, description="Distance above 1 beyond which a weight is cut.")

    @classmethod
    def build(cls, settings, context):
        """From settings."""
        return cls(settings.high)

    def __call__(self, inputs: LossInputs, totals: Totals) -> Loss:
        """The micro-batch's share of the loss."""
        ratio = token_ratio(inputs.logprobs, inputs.old_logprobs, inputs.loss_mask).detach()
        weights = ratio.clamp(max=1.0 + self.high) * inputs.weights.unsqueeze(-1)
        values = -weights * inputs.advantages * inputs.logprobs.masked_fill(~inputs.loss_mask, 0.0)
        is_cut = (ratio > 1.0 + self.high).to(values.dtype)
        return Loss(
            loss=aggregate_tokens(values, inputs.loss_mask, "token-mean", totals),
            metrics={"cispo/cut_frac": aggregate_tokens(is_cut, inputs.loss_mask, "token-mean", totals)},
        )
