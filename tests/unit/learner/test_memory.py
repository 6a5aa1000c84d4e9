"""Memory that a tensor frees stays in the process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

MIB = 512
PROGRAM = f"""
import psutil, torch
from agentrl.learner.memory import keep_freed_memory

def resident():
    return psutil.Process().memory_info().rss >> 20

def held():
    before = resident()
    tensors = [torch.ones({MIB // 4} << 18) for _ in range(4)]
    del tensors
    return resident() - before

print(held())
keep_freed_memory()
print(held())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_memory_that_tensors_free_stays_in_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    before, after = map(int, done.stdout.split())
    assert before < MIB / 4
    assert after > 3 * MIB / 4
