"""Seconds per GiB of weights between two hosts, beside a plain copy over the same link, and on one host.

python -m benchmarks.hosts [--model FOLDER] [--rounds 5]; the last line is the figures as JSON. It needs root: the hosts
are network, mount and process namespaces of this machine, as in tests/cluster, so the link between them is memory. In
turns: `publish`, a whole publication, with the engine's load and checks; `carry`, the same without the engine, which is
staging and, between hosts, the way into the shared memory of the engine's host; `copy`, a file in shared memory through
one connection of TCP into a file in the other host's shared memory.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentrl.cluster.relay import HostRelay
from agentrl.config.models import locate
from agentrl.types import Version
from agentrl.weights.transfer import StagedTransfer
from benchmarks.rollout import config_of, flags
from benchmarks.sync import at_work
from benchmarks.timing import alternated, column, last_line
from tests.cluster.hosts import Host, hosts, missing, shared_folder

HERE = ("env", f"PYTHONPATH={Path(__file__).parents[1]}", sys.executable, "-m", "benchmarks.hosts")
PORT = 7000
CHUNK = 1 << 20
SHARED_MEMORY = Path("/dev/shm")
TIMEOUT_S = 600.0
PARTS = ("stage_s", "load_s", "verify_s")


def receive(address: str) -> None:
    """Write what every connection sends into a file in shared memory, and answer when all of it is there."""
    file = SHARED_MEMORY / "received"
    with socket.create_server((address, PORT)) as server:
        print("ready", flush=True)
        while True:
            connection, _ = server.accept()
            with connection, file.open("wb", buffering=0) as out:
                while chunk := connection.recv(CHUNK):
                    out.write(chunk)
                connection.sendall(b"1")
            file.unlink()


def send(file: Path, address: str) -> None:
    """Copy a file to the host that receives."""
    with socket.create_connection((address, PORT), TIMEOUT_S) as connection, file.open("rb") as content:
        connection.sendfile(content)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b"1", "the other host did not get all of it"


async def measure(args: argparse.Namespace, engine: str, copied: int = 0) -> dict[str, float]:
    """Publish from this host to an engine on the host with the resource `engine`; copy so many bytes in turns."""
    config = config_of(args)
    config = config.model_copy(
        update={
            "engine": config.engine.model_copy(update={"nodes": engine}),
            "learner": config.learner.model_copy(update={"nodes": "learner"}),
            "rollout": config.rollout.model_copy(update={"nodes": "learner"}),
        }
    )
    file = SHARED_MEMORY / "to-send"
    async with at_work(config, locate(config.model.name), Path(args.out)) as (team, publications):
        relay = HostRelay(team.agents, lambda: team.learners.host)
        transfer = StagedTransfer(team.learners.buckets, relay)

        async def carry() -> dict[str, float]:
            engines = list(team.engines.serving().values())
            async with transfer.opened(engines, Version(1, 0), TIMEOUT_S) as delivery:
                while await delivery.next(0) is not None:
                    pass
            return {}

        async def copy() -> dict[str, float]:
            await asyncio.to_thread(send, file, args.peer)
            return {}

        arms = {"publish": publications.publish, "carry": carry}
        if copied:
            file.write_bytes(os.urandom(CHUNK) * (copied // CHUNK))
            arms["copy"] = copy
        taken = await alternated(args.rounds, arms)
        file.unlink(missing_ok=True)
    figures = {part: column(taken["publish"], part) for part in PARTS}
    figures["mib"] = column(taken["publish"], "mib")
    return figures | {f"{name}_s_per_gib": column(taken[name], "seconds") * 1024 / figures["mib"] for name in arms}


async def inside(args: argparse.Namespace) -> None:
    """Measure on the host of the learner."""
    one = await measure(args, "learner")
    two = await measure(args, "engine", int(one["mib"]) * CHUNK)
    ratio = two["carry_s_per_gib"] / two["copy_s_per_gib"]
    print(last_line("hosts", {"one_host": one, "two_hosts": two, "carry_to_copy": ratio}))


@contextmanager
def receiving(host: Host) -> Iterator[None]:
    """Keep a process on the host that receives."""
    command = host.command(*HERE, "--receive", host.address)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert b"ready\n" in process.stdout, "the other host does not receive"
            yield
        finally:
            process.kill()


def outside(words: list[str]) -> int:
    """Make the hosts and measure on the first; returns the exit status."""
    if reason := missing():
        sys.exit(f"no hosts can be made here: {reason}")
    locate("")  # before any host needs it
    with shared_folder() as folder, hosts("learner", "engine") as (learner, engine), receiving(engine):
        learner.start_ray("learner")
        engine.join_ray(learner, "engine")
        own = ["--inside", "--peer", engine.address, "--out", str(folder)]
        command = learner.command(*HERE, *own, *words)
        return subprocess.run(command, check=False).returncode


def main() -> None:
    parser = flags(__doc__)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    parser.add_argument("--receive", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.receive:
        receive(args.receive)
    elif args.inside:
        asyncio.run(inside(args))
    else:
        sys.exit(outside(sys.argv[1:]))


if __name__ == "__main__":
    main()
