"""What a process does with memory that it frees."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from evoseek.policy.machine import (
    FEWEST_ROWS,
    Machine,
    QuickLinear,
    find_machine,
    is_slow_with_bfloat16,
    quicken_products,
)

CHILD = """
import resource
import torch
from evoseek.policy.machine import keep_freed_memory
keep_freed_memory()
block = torch.ones(6 << 20)  # 24 MiB
del block
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
block = torch.ones(4 << 20)  # 16 MiB, 4,096 pages
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_freed_memory_is_used_again():
    """Without `keep_freed_memory`, the second block is made of 4,096 new pages (or of 8 large ones)."""
    result = subprocess.run([sys.executable, "-c", CHILD], check=True, capture_output=True, text=True)
    assert int(result.stdout) < 8


def wide(size_in: int, size_out: int, bias: bool) -> QuickLinear:
    torch.manual_seed(0)
    return QuickLinear(size_in, size_out, bias=bias, dtype=torch.bfloat16)


def test_the_sum_runs_in_float32_and_the_output_is_rounded_once():
    """256 + 63 times 1: in bfloat16 each 256 + 1 would stay 256, in float32 the sum is 319, which rounds to 320."""
    layer = wide(64, 1, bias=False)
    nn.init.ones_(layer.weight)
    inputs = torch.ones(FEWEST_ROWS, 64, dtype=torch.bfloat16)
    inputs[:, 0] = 256
    assert layer(inputs).tolist() == [[320.0]] * FEWEST_ROWS


@pytest.mark.parametrize("bias", [False, True])
def test_outputs_and_gradients_are_those_of_float32_rounded(bias: bool):
    layer = wide(48, 80, bias)
    exact = nn.Linear(48, 80, bias=bias)
    exact.load_state_dict(layer.state_dict())
    inputs = torch.randn(2, FEWEST_ROWS, 48, dtype=torch.bfloat16, requires_grad=True)
    outputs = layer(inputs)
    weights = torch.randn_like(outputs)
    outputs.backward(weights)
    twin = inputs.detach().float().requires_grad_()
    exact(twin).backward(weights.float())
    pairs = [(outputs, exact(twin)), (inputs.grad, twin.grad)]
    pairs += [(own.grad, other.grad) for own, other in zip(layer.parameters(), exact.parameters(), strict=True)]
    for own, other in pairs:
        assert own is not None
        assert other is not None
        assert own.dtype == torch.bfloat16
        assert torch.allclose(own.float(), other, rtol=2**-8, atol=1e-5)  # half a unit in the last of 8 bits


def test_few_rows_or_other_types_are_an_ordinary_product():
    layer = wide(48, 80, bias=True)
    inputs = torch.randn(FEWEST_ROWS - 1, 48, dtype=torch.bfloat16)
    assert torch.equal(layer(inputs), nn.Linear.forward(layer, inputs))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(torch.randn(FEWEST_ROWS, 48)).dtype == torch.bfloat16


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 8, 40])
def test_products_in_float32_are_the_same_but_for_the_order_of_the_sum(rows: int, bias: bool):
    torch.manual_seed(0)
    layer, usual = QuickLinear(48, 80, bias=bias), nn.Linear(48, 80, bias=bias)
    usual.load_state_dict(layer.state_dict())
    inputs = torch.randn(2, rows, 48, requires_grad=True)
    twin = inputs.detach().requires_grad_()
    weights = torch.randn(2, rows, 80)
    outputs, expected = layer(inputs), usual(twin)
    outputs.backward(weights)
    expected.backward(weights)
    pairs = [(outputs, expected), (inputs.grad, twin.grad)]
    pairs += [(own.grad, other.grad) for own, other in zip(layer.parameters(), usual.parameters(), strict=True)]
    for own, other in pairs:
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("slow", [torch.float32, torch.bfloat16, None])
def test_those_layers_of_a_model_are_quickened_that_are_slow_here(
    monkeypatch: pytest.MonkeyPatch, slow: torch.dtype | None
):
    monkeypatch.setattr("evoseek.policy.machine.is_slow_with_bfloat16", lambda: slow == torch.bfloat16)
    monkeypatch.setattr("evoseek.policy.machine._is_slow_with_float32", lambda: slow == torch.float32)
    config = LlamaConfig(
        vocab_size=96, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    for each in (model, copy.deepcopy(model).bfloat16()):
        usual = copy.deepcopy(each)
        quicken_products(each)
        expected = QuickLinear if each.dtype == slow else nn.Linear
        assert {type(module) for module in each.modules() if isinstance(module, nn.Linear)} == {expected}
        ids = torch.arange(90)[None]
        with torch.inference_mode():
            difference = each(ids).logits.float() - usual.float()(ids).logits
        assert difference.abs().max() < (0.02 if each.dtype == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize(
    ("machine", "tiles", "vectors", "slow"),
    [
        ("x86_64", False, False, True),
        ("x86_64", True, False, False),
        ("AMD64", False, True, False),
        ("aarch64", False, False, False),
    ],
)
def test_either_unit_for_bfloat16_is_enough(
    monkeypatch: pytest.MonkeyPatch, machine: str, tiles: bool, vectors: bool, slow: bool
):
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("torch.cpu._is_amx_tile_supported", lambda: tiles)
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: vectors)
    assert is_slow_with_bfloat16() == slow


def test_products_are_timed_in_both_types_forward_backward_and_few_at_a_time(monkeypatch: pytest.MonkeyPatch):
    seen: list[tuple[str, torch.dtype]] = []
    forward = nn.Linear.forward

    def told(layer: nn.Linear, rows: torch.Tensor) -> torch.Tensor:
        product = forward(layer, rows)
        seen.append((f"{len(rows)} x {layer.in_features} x {layer.out_features}", layer.weight.dtype))
        if product.requires_grad:
            product.register_hook(lambda _: seen.append(("backward", layer.weight.dtype)))
        return product

    monkeypatch.setattr(nn.Linear, "forward", told)
    monkeypatch.setattr("evoseek.policy.machine.is_slow_with_bfloat16", lambda: False)
    monkeypatch.setattr("evoseek.policy.machine._is_slow_with_float32", lambda: False)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    readings: list[int] = []
    gain = Machine("cpu", 0, clock=lambda: float(readings.append(len(seen)) or sum(readings))).bfloat16_gain(24, 40)
    once = ["128 x 24 x 40", "backward", *["32 x 24 x 40"] * 4]
    types = [torch.float32, torch.bfloat16] * 4  # once before the clock runs, and in three rounds
    assert seen == [(name, dtype) for dtype in types for name in once]
    assert readings == [12, 18, 18, 24, 24, 30, 30, 36, 36, 42, 42, 48]
    assert gain == 18 / 24  # the first round's: each reading adds what was seen by then
    assert torch.equal(torch.get_rng_state(), before)


def test_a_machine_knows_how_many_processes_train_together(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert find_machine("cpu").processes == 1
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert find_machine("cpu").processes == 4
