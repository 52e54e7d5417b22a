"""What a process does with memory that it frees."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
