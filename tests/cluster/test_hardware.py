"""`agentrl plan` asks every machine of a cluster what it has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster.hosts import hosts, join_all
from tests.cluster.runs import AGENTRL, NEEDS_HOSTS
from tests.unit.planning.published import folder_of

pytestmark = NEEDS_HOSTS

NVIDIA_SMI = """#!/bin/sh
for number in 0 1 2 3 4 5 6 7; do echo "$number, GPU-$number, NVIDIA H100 80GB HBM3, 81559"; done
"""
MEMORY = "MemTotal: 1073741824 kB\nMemFree: 1073741824 kB\nMemAvailable: 1073741824 kB\n"
PLAN = ("--engine.count=2", "--engine.tensor_parallel=8", "--engine.placement=separate", "--learner.ranks=16")


def test_a_plan_takes_the_gpus_of_all_machines(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hosts have a stand-in for nvidia-smi, 1 TiB of memory, and the metadata of vLLM's build for GPUs."""
    commands, packages = shared / "bin", shared / "packages"
    commands.mkdir()
    (commands / "nvidia-smi").write_text(NVIDIA_SMI)
    (commands / "nvidia-smi").chmod(0o755)
    (packages / "vllm-0.32.0.dist-info").mkdir(parents=True)
    (packages / "vllm-0.32.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0\n")
    (shared / "meminfo").write_text(MEMORY)
    model = folder_of("Qwen2.5-32B", shared)
    with hosts("one", "two", "three", "four") as (head, *others):
        monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
        monkeypatch.setenv("PYTHONPATH", f"{packages}:{os.environ.get('PYTHONPATH', '')}")
        head.start_ray("all", gpus=8)
        join_all(head, dict.fromkeys(others, "all"), gpus=8)
        for host in (head, *others):
            host.run("mount", "--bind", str(shared / "meminfo"), "/proc/meminfo")
            host.run("mount", "-t", "tmpfs", "tmpfs", "/sys/fs/cgroup")
        said = head.run(*AGENTRL, "plan", "--model", str(model), *PLAN)
    assert "2 engines of 8 GPUs, 16 learner ranks at ZeRO stage 3" in said
    assert "on 4 machines with 8 x H100 of 79.6 GiB, separate" in said
