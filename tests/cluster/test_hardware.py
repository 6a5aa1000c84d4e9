"""GPUs of several machines: `agentrl plan` asks all of them, and engines and ranks get theirs.

The hosts have 8 GPUs each that only Ray believes in, a stand-in for nvidia-smi, 1 TiB of memory, and the metadata of
vLLM's build for GPUs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import msgspec
import pytest

from tests.cluster.hosts import Host, hosts, join_all, shared_folder
from tests.cluster.placed import Seats
from tests.cluster.runs import AGENTRL, NEEDS_HOSTS
from tests.unit.planning.published import folder_of

pytestmark = NEEDS_HOSTS

ROOT = Path(__file__).parents[2]
NVIDIA_SMI = """#!/bin/sh
for number in 0 1 2 3 4 5 6 7; do echo "$number, GPU-$number, NVIDIA H100 80GB HBM3, 81559"; done
"""
MEMORY = "MemTotal: 1073741824 kB\nMemFree: 1073741824 kB\nMemAvailable: 1073741824 kB\n"
PLAN = ("--engine.count=2", "--engine.tensor_parallel=8", "--engine.placement=separate", "--learner.ranks=16")
SHARED = ("--engine.count=3", "--engine.tensor_parallel=4", "--engine.placement=colocate", "--learner.ranks=12")


class Cluster(NamedTuple):
    """A Ray cluster by its head, with a folder that all hosts see and a model in it."""

    head: Host
    shared: Path
    model: Path

    def seats(self, *flags: str) -> Seats:
        """Where the processes of a run with these flags are."""
        run = mkdtemp(dir=self.shared)
        placed = (sys.executable, "-m", "tests.cluster.placed", str(self.model), run)
        said = self.head.run(*placed, *flags, timeout_s=400.0)
        return msgspec.json.decode(said.splitlines()[-1], type=Seats)


@pytest.fixture(scope="module")
def four() -> Iterator[Cluster]:
    """A cluster of four hosts."""
    with (
        shared_folder() as shared,
        pytest.MonkeyPatch.context() as patch,
        hosts("one", "two", "three", "four") as (head, *others),
    ):
        commands, packages = shared / "bin", shared / "packages"
        commands.mkdir()
        (commands / "nvidia-smi").write_text(NVIDIA_SMI)
        (commands / "nvidia-smi").chmod(0o755)
        (packages / "vllm-0.32.0.dist-info").mkdir(parents=True)
        metadata = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0\n"
        (packages / "vllm-0.32.0.dist-info" / "METADATA").write_text(metadata)
        (shared / "meminfo").write_text(MEMORY)
        patch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
        patch.setenv("PYTHONPATH", f"{packages}:{ROOT}:{os.environ.get('PYTHONPATH', '')}")
        head.start_ray("all", gpus=8)
        join_all(head, dict.fromkeys(others, "all"), gpus=8)
        for host in (head, *others):
            host.run("mount", "--bind", str(shared / "meminfo"), "/proc/meminfo")
            host.run("mount", "-t", "tmpfs", "tmpfs", "/sys/fs/cgroup")
        yield Cluster(head, shared, folder_of("Qwen2.5-32B", shared))


def test_a_plan_takes_the_gpus_of_all_machines(four: Cluster) -> None:
    said = four.head.run(*AGENTRL, "plan", "--model", str(four.model), *PLAN)
    assert "2 engines of 8 GPUs, 16 learner ranks at ZeRO stage 3" in said
    assert "on 4 machines with 8 x H100 of 79.6 GiB, separate" in said


def test_each_engine_has_a_machine_and_ranks_have_the_rest(four: Cluster) -> None:
    seats = four.seats(*PLAN)
    assert [engine.gpus for engine in seats.engines] == [tuple("01234567")] * 2
    own = {engine.host for engine in seats.engines}
    assert len(own) == 2
    rest = {(host, (gpu,)) for host in {"one", "two", "three", "four"} - own for gpu in "01234567"}
    assert {(rank.host, rank.gpus) for rank in seats.ranks} == rest
    assert len(seats.ranks) == len(rest)
    assert seats.again == seats.engines[-1]


@pytest.mark.parametrize("flags", [PLAN, SHARED], ids=["separate", "colocate"])
def test_reward_models_share_the_gpus_of_ranks(four: Cluster, flags: tuple[str, ...]) -> None:
    rewards = ", ".join(f'{{name = "rm{number}", model = "{four.model}"}}' for number in range(3))
    seats = four.seats(*flags, f"--reward.models=[{rewards}]", "--reward.placement=colocate")
    own = {(rank.host, rank.gpus) for rank in seats.ranks[:3]}
    assert {(reward.host, reward.gpus) for reward in seats.rewards} == own
    assert len(own) == 3


def test_engines_share_the_gpus_of_their_ranks(four: Cluster) -> None:
    seats = four.seats(*SHARED)
    shares = [seats.ranks[first : first + 4] for first in (0, 4, 8)]
    for engine, ranks in zip(seats.engines, shares, strict=True):
        assert {rank.host for rank in ranks} == {engine.host}
        assert tuple(gpu for rank in ranks for gpu in rank.gpus) == engine.gpus
    assert len({(rank.host, rank.gpus) for rank in seats.ranks}) == 12
    assert len({engine.host for engine in seats.engines}) == 2, "two engines fit on a machine"
    assert seats.again == seats.engines[-1]
