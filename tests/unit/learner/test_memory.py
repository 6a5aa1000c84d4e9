"""Memory that a tensor frees stays in the process; a GPU copies what it needs beside its work."""

from __future__ import annotations

import platform
import subprocess
import sys
from typing import Any, cast

import pytest
import torch

from agentrl.learner.memory import copied

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


class Recorded:
    """A tensor that records how it is copied."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def pin_memory(self) -> Recorded:
        self.calls.append("pin_memory")
        return self

    def to(self, device: torch.device, **options: bool) -> Recorded:
        self.calls.append((device.type, options))
        return self


def test_a_gpu_copies_pinned_memory_and_the_host_does_not_wait() -> None:
    to_gpu, to_cpu = Recorded(), Recorded()
    assert copied(cast(torch.Tensor, to_gpu), torch.device("cuda", 0)) is to_gpu  # type: ignore[comparison-overlap]
    copied(cast(torch.Tensor, to_cpu), torch.device("cpu"))
    assert to_gpu.calls == ["pin_memory", ("cuda", {"non_blocking": True})]
    assert to_cpu.calls == [("cpu", {})], "without a GPU no memory can be pinned"
