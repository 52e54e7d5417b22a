"""What a process does with memory that it frees, and what is found out about a machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

from evoseek.models.machine import find_machine

CHILD = """
import resource
import torch
from evoseek.models.machine import keep_freed_memory
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


def test_files_that_a_container_only_caches_take_no_memory(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("evoseek.models.machine._CGROUP", tmp_path)
    contents = {"max": "1000", "current": "900", "stat": "anon 200\ninactive_file 600\nactive_file 100\n"}
    for name, text in contents.items():
        (tmp_path / f"memory.{name}").write_text(text)
    assert find_machine("cpu").free_bytes == 700
    (tmp_path / "memory.max").write_text("max")
    assert find_machine("cpu").free_bytes > 1000


@pytest.mark.parametrize(("amx", "avx512"), [(False, False), (True, False), (False, True)])
def test_a_cpu_multiplies_bfloat16_if_it_has_the_instructions(monkeypatch: pytest.MonkeyPatch, amx: bool, avx512: bool):
    monkeypatch.setattr("torch.cpu._is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: avx512)
    assert find_machine("cpu").has_bfloat16 == (amx or avx512)


def test_a_machine_knows_how_many_processes_train_together(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert find_machine("cpu").processes == 1
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert find_machine("cpu").processes == 4
