"""Products of linear layers in another library or type of number, and those of an adapted layer in one pass."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from evoseek.models.cpu_matmul import (
    FEWEST_ROWS,
    QuickLinear,
    adapted_product,
    is_slow_with_bfloat16,
    multiplies_adapters,
    quicken_products,
)


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
    monkeypatch.setattr("evoseek.models.cpu_matmul.is_slow_with_bfloat16", lambda: slow == torch.bfloat16)
    monkeypatch.setattr("evoseek.models.cpu_matmul._is_slow_with_float32", lambda: slow == torch.float32)
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


def test_an_adapted_product_by_hand():
    """x = (1, 2): W x = 3 + 10; A x = 1 + 2 * 2 = 5, twice that times B = 4 adds 40, and the bias 100."""
    one = torch.tensor([[1.0, 2.0]])
    found = adapted_product(one, torch.tensor([[3.0, 5.0]]), torch.tensor([100.0]), one, torch.tensor([[4.0]]), 2.0)
    assert found.tolist() == [[153.0]]


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_gradients_of_an_adapted_product_are_those_of_its_formula(bias: bool, frozen: bool):
    torch.manual_seed(0)
    shapes = (2, 5, 24), (40, 24), (40,), (4, 24), (40, 4)
    inputs = [torch.randn(shape, requires_grad=place not in (1, 2) or not frozen) for place, shape in enumerate(shapes)]
    x, weight, offset, down, up = inputs
    used = offset if bias else None
    found = adapted_product(x, weight, used, down, up, 0.5)
    expected = nn.functional.linear(x, weight, used) + 0.5 * (x @ down.T @ up.T)
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(found)
    asked = [each for each in inputs if each.requires_grad and (bias or each is not offset)]
    gradients = zip(
        torch.autograd.grad(found, asked, weights), torch.autograd.grad(expected, asked, weights), strict=True
    )
    for own, other in gradients:
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-5)


def test_an_adapter_in_float32_over_bfloat16_keeps_its_type_of_gradient():
    torch.manual_seed(0)
    x, weight = torch.randn(9, 24).bfloat16(), torch.randn(40, 24).bfloat16()
    down, up = torch.randn(4, 24, requires_grad=True), torch.randn(40, 4, requires_grad=True)
    found = adapted_product(x, weight, None, down, up, 1.0)
    found.sum().backward()
    assert found.dtype == torch.bfloat16
    assert down.grad is not None
    assert up.grad is not None
    exact = x.float() @ down.T
    assert down.grad.dtype == up.grad.dtype == torch.float32
    torch.testing.assert_close(found.float(), x.float() @ weight.float().T + exact @ up.T, rtol=0.02, atol=0.2)
    torch.testing.assert_close(up.grad, exact.sum(0).expand(40, -1), rtol=0.02, atol=0.2)


@pytest.mark.parametrize("slow", [True, False])
def test_adapters_are_multiplied_in_a_type_that_the_processor_has(monkeypatch: pytest.MonkeyPatch, slow: bool):
    monkeypatch.setattr("evoseek.models.cpu_matmul.is_slow_with_bfloat16", lambda: slow)
    found = [multiplies_adapters(torch.zeros(2, dtype=t)) for t in (torch.float32, torch.bfloat16, torch.float16)]
    assert found == [True, not slow, False]
    assert not multiplies_adapters(torch.zeros(2, device="meta"))
