"""What a process does with memory that it frees, and how a machine's products are timed."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from evoseek.policy.machine import Machine, find_machine

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
    monkeypatch.setattr("evoseek.policy.products.is_slow_with_bfloat16", lambda: False)
    monkeypatch.setattr("evoseek.policy.products._is_slow_with_float32", lambda: False)
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
