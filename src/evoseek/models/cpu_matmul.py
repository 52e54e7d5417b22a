"""Products of linear layers on a CPU: the library and the type of number that multiply, and low-rank adapters in the
same pass.

A product of bfloat16 numbers is always summed in float32. Without instructions for it (AMX or AVX-512 BF16), an x86
processor multiplies bfloat16 numbers at most half as fast as float32 ones. So products with many rows run in float32
there; the results differ only by the order of the sum. A product of float32 numbers runs in oneDNN where MKL, torch's
default, is slow: on AMD's processors with AVX-512 MKL uses half of each vector.
"""

from __future__ import annotations

import platform
import re
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.functional import linear

FEWEST_ROWS = 64  # of a product in float32; with fewer, converting the weights takes longer than the arithmetic
_FEWEST_ROWS = 8  # of a product with float32 weights; with fewer, MKL is faster
_SMALL = 10_000_000  # parameters


def is_small(model: nn.Module) -> bool:
    """Return whether a model has so few parameters that its passes are not changed, to the bit."""
    return sum(parameter.numel() for parameter in model.parameters()) < _SMALL


class QuickLinear(nn.Linear):
    """A linear layer of a real model on a CPU, whose products run in float32 by the quicker library.

    This applies to float32 weights from `_FEWEST_ROWS` rows on, and to bfloat16 weights from `FEWEST_ROWS` rows on.
    For bfloat16, inputs, outputs, gradients and saved activations are bfloat16, as in `nn.Linear`.
    """

    def forward(self, input: Tensor) -> Tensor:
        fewest = FEWEST_ROWS if self.weight.dtype == torch.bfloat16 else _FEWEST_ROWS
        few = input.numel() < fewest * self.in_features
        if few or input.dtype != self.weight.dtype or torch.is_autocast_enabled("cpu"):
            return super().forward(input)
        result: Tensor = _Product.apply(input, self.weight, self.bias)  # pyright: ignore[reportUnknownMemberType]
        return result


def quicken_products(model: nn.Module) -> None:
    """Make the model's linear layers on the CPU `QuickLinear` where this processor then multiplies faster."""
    types = {torch.bfloat16: is_slow_with_bfloat16(), torch.float32: _is_slow_with_float32()}
    for module in model.modules():
        if type(module) is nn.Linear and module.weight.device.type == "cpu" and types.get(module.weight.dtype):
            module.__class__ = QuickLinear


def multiplies_adapters(weight: Tensor) -> bool:
    """Return whether `adapted_product` applies: weights on a CPU, in a type that it multiplies directly."""
    return is_quick_bfloat16(weight) or (weight.dtype == torch.float32 and weight.device.type == "cpu")


def has_bfloat16_products() -> bool:
    """Return whether this is an x86 processor with instructions that multiply bfloat16 numbers."""
    return (
        torch.cpu._is_amx_tile_supported()  # pyright: ignore[reportPrivateUsage]
        or torch.cpu._is_avx512_bf16_supported()  # pyright: ignore[reportPrivateUsage]
    )


def is_slow_with_bfloat16() -> bool:
    """Return whether this is an x86 processor without instructions that multiply bfloat16 numbers."""
    return platform.machine() in ("x86_64", "AMD64") and not has_bfloat16_products()


@cache
def _is_slow_with_float32() -> bool:
    """Return whether MKL, torch's library for products in float32, leaves half of this processor's vectors unused, and
    oneDNN, which torch has for its compiler, can be called instead."""
    try:
        maker = re.search(r"vendor_id\s*: (\w+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:  # another system than Linux
        return False
    wide = torch.cpu._is_avx512_supported()  # pyright: ignore[reportPrivateUsage]
    return wide and maker is not None and maker[1] != "GenuineIntel" and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _float32_product(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if _is_slow_with_float32():
        return torch.ops.mkldnn._linear_pointwise(input, weight, bias, "none", [], "")
    return linear(input, weight, bias)


def is_quick_bfloat16(values: Tensor) -> bool:
    """Return whether these are bfloat16 numbers on a CPU with instructions to multiply them."""
    return values.dtype == torch.bfloat16 and values.device.type == "cpu" and not is_slow_with_bfloat16()


class _Product(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(input, weight)
        return _float32_product(input.float(), weight.float(), None if bias is None else bias.float()).to(input.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        input, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        gradient = gradients[0].float()
        rows = gradient.flatten(0, -2)
        return (
            _float32_product(gradient, weight.float().T).to(input.dtype) if wanted[0] else None,
            _float32_product(rows.T, input.float().flatten(0, -2).T).to(weight.dtype) if wanted[1] else None,
            rows.sum(0).to(weight.dtype) if wanted[2] else None,
        )


def adapted_product(
    input: Tensor, weight: Tensor, bias: Tensor | None, down: Tensor, up: Tensor, scaling: float
) -> Tensor:
    """Return x W^T + b + scaling x A^T B^T, A = `down` [rank, in], B = `up` [out, rank], in the type of the weights.

    It takes one pass, so the adapter's contribution is never in memory separately, forward or backward. An adapter in
    float32 over bfloat16 weights is multiplied in bfloat16, too. The adapter's gradients have its own type.
    """
    result: Tensor = _AdaptedProduct.apply(  # pyright: ignore[reportUnknownMemberType]
        input, weight, bias, down.to(weight.dtype), up.to(weight.dtype), scaling
    )
    return result


class _AdaptedProduct(Function):
    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, down: Tensor, up: Tensor, scaling: float
    ) -> Tensor:
        rows = input.flatten(0, -2)
        inner = _times(rows, down).mul_(scaling)
        ctx.save_for_backward(rows, weight, down, up, inner)
        ctx.scaling = scaling
        return _times(rows, weight, bias).addmm_(inner, up.T).unflatten(0, input.shape[:-1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, down, up, inner = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        gradient = gradients[0].flatten(0, -2)
        narrow = _times(gradient, up.T).mul_(ctx.scaling)
        own = _times(gradient, weight.T).addmm_(narrow, down) if wanted[0] else None
        return (
            None if own is None else own.unflatten(0, gradients[0].shape[:-1]),
            _times(gradient.T, rows.T) if wanted[1] else None,
            gradient.sum(0) if wanted[2] else None,
            _times(narrow.T, rows.T) if wanted[3] else None,
            _times(inner.T, gradient.T).T if wanted[4] else None,
            None,
        )


def _times(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return rows W^T + b, in the type of both."""
    return _float32_product(rows, weight, bias) if rows.dtype == torch.float32 else linear(rows, weight, bias)
