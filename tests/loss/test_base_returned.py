"""What a loss of one's own returns is checked before the first step, which may have no signal."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from evoseek.errors import ConfigError
from evoseek.loss.base import Loss, PolicyLoss, check_loss
from evoseek.loss.clipped import ClippedLoss, SequenceLoss
from evoseek.loss.likelihood import CrossEntropyLoss, ReinforceLoss
from evoseek.loss.terms import WithTerms


@dataclass(frozen=True)
class Mine(PolicyLoss):
    """A loss that makes this of the sum of the logprobs."""

    make: Any

    def __call__(self, inputs, totals):
        return self.make(-inputs.logprobs.sum())


@pytest.mark.parametrize(
    "loss",
    [
        *(ClippedLoss(aggregate=how) for how in ("token-mean", "sequence-mean-token-mean", "sequence-sum", 7)),
        *(SequenceLoss(), ReinforceLoss(), CrossEntropyLoss()),
        WithTerms(ClippedLoss(), "truncate", kl=0.1, entropy=0.1),
        Mine(lambda loss: Loss(loss, {"sum": loss.detach()})),
        Mine(lambda loss: Loss(loss.reshape(1), {})),
    ],
)
def test_losses_that_are_sound(loss):
    check_loss(loss)


def fails(loss):
    raise KeyError("x")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda loss: loss, "gave an object of the type Tensor, not Loss"),
        (lambda loss: None, "type NoneType"),
        (lambda loss: (loss, {}), "type tuple"),
        (lambda loss: Loss(0.5, {}), "a loss of the type float, not a tensor"),
        (lambda loss: Loss(loss.detach(), {}), "a loss without a gradient"),
        (lambda loss: Loss(loss.expand(2, 3), {}), r"a loss of the shape \[2, 3\], not a scalar"),
        (lambda loss: Loss(loss * torch.nan, {}), "the loss nan for two made-up samples"),
        (lambda loss: Loss(loss - torch.inf, {}), "the loss -inf"),
        (lambda loss: Loss(loss, None), "metrics of the type NoneType"),
        (lambda loss: Loss(loss, {"x": 1.0}), "the metric 'x' = 1.0"),
        (lambda loss: Loss(loss, {"x": torch.ones(2)}), "the metric 'x' = "),
        (fails, "failed on two made-up samples: KeyError: 'x'"),
    ],
)
def test_trap_anything_else_is_refused_and_names_the_loss(make, words):
    with pytest.raises(ConfigError, match=f"The loss Mine .*{words}") as raised:
        check_loss(Mine(make))
    assert "Nothing was trained on" in str(raised.value)
