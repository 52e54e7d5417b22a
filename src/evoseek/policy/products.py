"""Matrix products of bfloat16 weights on a CPU, in float32 arithmetic where that is faster.

A product of bfloat16 numbers is summed in float32 in any case, so both ways give the same but for the order of the sum.
Without a matrix unit (AMX), an x86 processor multiplies bfloat16 numbers at half the rate of float32 ones or less; with
many rows, the conversion of the weights for each product is a small part of it.
"""

from __future__ import annotations

import platform
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.functional import linear

FEWEST_ROWS = 64  # with fewer, reading and converting the weights takes longer than the arithmetic


class WideLinear(nn.Linear):
    """A linear layer with bfloat16 weights whose products of `FEWEST_ROWS` rows or more run in float32.

    Inputs, outputs, gradients and what is kept for the backward pass are bfloat16, as in `nn.Linear`.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The product, as of `nn.Linear`."""
        rows = input.numel() // self.in_features
        if rows < FEWEST_ROWS or not input.dtype == self.weight.dtype == torch.bfloat16:
            return super().forward(input)
        result: Tensor = _Product.apply(input, self.weight, self.bias)  # pyright: ignore[reportUnknownMemberType]
        return result


def widen_products(model: nn.Module) -> None:
    """Make the model's bfloat16 linear layers on the CPU `WideLinear`."""
    for module in model.modules():
        if type(module) is nn.Linear and module.weight.dtype == torch.bfloat16 and module.weight.device.type == "cpu":
            module.__class__ = WideLinear


def is_slow_with_bfloat16() -> bool:
    """Whether this is an x86 processor without a matrix unit for bfloat16."""
    return platform.machine() in ("x86_64", "AMD64") and not torch.cpu._is_amx_tile_supported()  # pyright: ignore[reportPrivateUsage]


class _Product(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(input, weight)
        return linear(input.float(), weight.float(), None if bias is None else bias.float()).to(input.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        input, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        gradient = gradients[0].float()
        rows = gradient.flatten(0, -2)
        return (
            (gradient @ weight.float()).to(input.dtype) if wanted[0] else None,
            (rows.T @ input.float().flatten(0, -2)).to(weight.dtype) if wanted[1] else None,
            rows.sum(0).to(weight.dtype) if wanted[2] else None,
        )
