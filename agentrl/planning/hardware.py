"""The devices of a plan, and the constants from which seconds are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentrl.config.machine import GIB, Gpu, Machine
from agentrl.errors import UnknownNameError


@dataclass(frozen=True, slots=True)
class GpuKind:
    """A kind of GPU by its vendor's datasheet, `source`.

    `memory_gib` is what nvidia-smi reports, `flops` are dense operations per second in bfloat16, `memory_rate` and
    `link_rate` bytes per second of its memory and of NVLink or PCIe in one direction.
    """

    name: str
    memory_gib: float
    flops: float
    memory_rate: float
    link_rate: float
    source: str


KINDS = {
    kind.name.lower(): kind
    for kind in (
        GpuKind("A100", 80.0, 312e12, 2.04e12, 300e9, "NVIDIA A100 datasheet, SXM 80 GB"),
        GpuKind("H100", 79.6, 989e12, 3.35e12, 450e9, "NVIDIA H100 datasheet, SXM"),
        GpuKind("H200", 140.4, 989e12, 4.8e12, 450e9, "NVIDIA H200 datasheet, SXM"),
        GpuKind("B200", 179.0, 2250e12, 8.0e12, 900e9, "NVIDIA HGX B200 datasheet"),
        GpuKind("L40S", 45.0, 362e12, 0.864e12, 32e9, "NVIDIA L40S datasheet, PCIe"),
    )
}
DEFAULT_KIND = "H100"

# The share of a datasheet's figure that a phase reaches. Assumed, and printed with every plan.
TRAINING_SHARE = 0.35
"""Of the operations, in forward and backward passes (model FLOPs utilization)."""
PREFILL_SHARE = 0.5
"""Of the operations, when an engine reads prompts."""
MEMORY_SHARE = 0.6
"""Of the memory rate, when an engine samples and an optimizer steps."""
LINK_SHARE = 0.6
"""Of the link rate, when ranks exchange gradients or parameters, and learner and engines weights."""
NODE_LINK_RATE = 50e9
"""Bytes per second between machines and GPU: one 400 Gbit/s adapter for each GPU, as in a DGX H100."""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine: its GPUs, and its memory in bytes."""

    gpus: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Hardware:
    """The machines of a run, and the memory of each GPU, that of the smallest."""

    hosts: tuple[Host, ...]
    gpu_gib: float
    kind: GpuKind

    @classmethod
    def of(cls, machine: Machine) -> Hardware:
        """Return the hardware of a machine, or of the hosts of a cluster: of those with GPUs if any has one."""
        hosts = machine.hosts or (machine,)
        used = [host for host in hosts if host.gpus] or hosts
        gpu_gib = min((gpu.memory_gib for gpu in machine.gpus), default=0.0)
        found = (Host(len(host.gpus), int(host.memory_gib * GIB)) for host in used)
        return cls(tuple(found), gpu_gib, kind_of(machine.gpus))

    @property
    def gpus(self) -> int:
        """The GPUs of the machine that has the most."""
        return max(host.gpus for host in self.hosts)

    @property
    def gpu_bytes(self) -> int:
        """Memory of a GPU."""
        return int(self.gpu_gib * GIB)

    @property
    def largest_host_bytes(self) -> int:
        """Memory of the machine that has the most."""
        return max(host.nbytes for host in self.hosts)

    @property
    def host_bytes(self) -> int:
        """Memory of all machines together."""
        return sum(host.nbytes for host in self.hosts)

    def link_rate(self, devices: int) -> float:
        """Return the bytes per second that each of some devices exchanges with the others."""
        return (self.kind.link_rate if devices <= self.gpus else NODE_LINK_RATE) * LINK_SHARE


def kind_of(gpus: Sequence[Gpu]) -> GpuKind:
    """Return the kind of these GPUs by their names; the default for a kind that is not in the table."""
    name = gpus[0].name.lower() if gpus else ""
    return next((kind for key, kind in KINDS.items() if key in name), KINDS[DEFAULT_KIND.lower()])


def kind_named(name: str) -> GpuKind:
    """Return a kind by its name. Raises UnknownNameError."""
    if name.lower() not in KINDS:
        raise UnknownNameError("kind of GPU", name, [kind.name for kind in KINDS.values()])
    return KINDS[name.lower()]
