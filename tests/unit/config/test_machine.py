"""What this machine has is found without anything heavy, and limits of containers count."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.config import machine
from agentrl.config.machine import Gpu, detect


def test_detection_finds_this_machine() -> None:
    here = detect()
    assert 1 <= here.cores <= (os.cpu_count() or 1)
    assert 0 < here.free_memory_gib <= here.memory_gib
    assert here.disk_gib > 0
    assert here.has("pydantic") is False
    assert here.has("gymnasium")


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, agentrl.config.machine, agentrl.config.resolve, agentrl.config.doctor;"
        "agentrl.config.machine.detect();"
        "heavy = 'torch ray vllm deepspeed transformers huggingface_hub'.split();"
        "print([name for name in heavy if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "max 100000"}, 64),
        ({"cpu.cfs_quota_us": "300000", "cpu.cfs_period_us": "100000"}, 3),
        ({"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, 64),
        ({}, 64),
    ],
)
def test_cores_respect_the_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], cores: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(machine, "_cgroups", lambda controller: iter([tmp_path]))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    assert detect().cores == cores


@pytest.mark.parametrize("name", ["memory.max", "memory.limit_in_bytes"])
def test_memory_respects_the_cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / name).write_text(f"{2**29}\n")
    monkeypatch.setattr(machine, "_cgroups", lambda controller: iter([tmp_path]))
    here = detect()
    assert here.memory_gib == 0.5
    assert here.free_memory_gib <= 0.5


@pytest.mark.parametrize(
    ("visible", "names"), [(None, ["A", "B"]), ("1", ["B"]), ("", []), ("GPU-a", ["A"]), ("-1", [])]
)
def test_gpus_are_those_that_this_process_may_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, names: list[str]
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf '0, GPU-aa, A, 81920\\n1, GPU-bb, B, 40960\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = detect().gpus
    assert [gpu.name for gpu in found] == names
    assert found[:1] in ((), (Gpu("A", 80.0),), (Gpu("B", 40.0),))


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx512f avx512_vnni\n", False),
        ("processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16\n", True),
        ("processor\t: 0\nflags\t\t: fpu amx_bf16 amx_tile\n", True),
        ("flags\t\t: fpu amx_bf16\n\nflags\t\t: fpu avx2\n", False),
        ("processor\t: 0\nFeatures\t: fp asimd bf16\n", True),
        ("processor\t: 0\nFeatures\t: fp asimd\n", False),
    ],
    ids=["avx512", "avx512_bf16", "amx", "one of two", "arm", "arm without"],
)
def test_bfloat16_is_an_instruction_of_every_cpu(cpuinfo: str, expected: bool) -> None:
    assert machine._has_bfloat16(cpuinfo) is expected


def test_a_broken_nvidia_smi_means_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'no driver'\nexit 9\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert detect().gpus == ()
