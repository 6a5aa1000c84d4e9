"""Hosts made of namespaces: each has its own address, host name, processes, /tmp and /dev/shm, and its own home.

They share the file system otherwise, and this machine's cores and memory. A switch, a network namespace too, connects
them; nothing of this machine's own network is touched.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agentrl.config.embedded import cache_folder

SUBNET = "10.99.0"
RAY = (sys.executable, "-m", "ray.scripts.scripts")
STORE_BYTES = 200 << 20
WAIT_S = 10.0
UNSHARED = ("--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc")
TRIED = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /dev/shm
ip link add switch type bridge
ip link add cable type veth peer name eth0
"""
SETUP = """
set -e
hostname {name}
mount --make-rprivate /
mount -t tmpfs -o size={shm_mib}m tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
mkdir /tmp/home
printf '127.0.0.1 localhost\\n127.0.1.1 {name}\\n' > /tmp/hosts  # as Debian writes it
mount --bind /tmp/hosts /etc/hosts
ip link set lo up
echo ready
exec sleep infinity
"""


@dataclass(frozen=True)
class Host:
    """A host, by the id of the process that holds its namespaces."""

    name: str
    address: str
    pid: int
    switch: int
    cable: str
    is_patient: bool = False
    """Whether Ray gives up a host that does not answer as late as by default, not after some seconds."""

    def command(self, *words: str) -> list[str]:
        """The command that runs `words` on the host."""
        impatient = [
            "RAY_health_check_period_ms=1000",
            "RAY_health_check_timeout_ms=3000",
            "RAY_health_check_failure_threshold=3",
        ]
        # Niceness: as in runs on one machine, which other tests have beside these hosts.
        ray = ["RAY_worker_niceness=0", *(() if self.is_patient else impatient)]
        # What vLLM finds out about a model class, and what it compiles, are kept for all hosts.
        caches = [f"VLLM_CACHE_ROOT={Path.home() / '.cache' / 'vllm'}", f"AGENTRL_CACHE={cache_folder()}"]
        shared = ["RAY_ADDRESS=auto", "RAY_AUTH_MODE=token", *caches]
        inside = ["nsenter", "-t", str(self.pid), "--net", "--mount", "--pid", "--uts", "--ipc"]
        return [*inside, "env", "HOME=/tmp/home", "TMPDIR=/tmp", *shared, *ray, *words]

    def run(self, *words: str, timeout_s: float = 120.0) -> str:
        """The output of a command on the host, which must succeed."""
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=timeout_s, check=False)
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{self.name}: {' '.join(words)} ended with {done.returncode}:\n{said}"
        return done.stdout

    def start_ray(self, resource: str, *, has_dashboard: bool = False, gpus: int = 0) -> None:
        """Start a Ray cluster whose head this host is, with a token; jobs are submitted to its dashboard."""
        self.run(*RAY, "get-auth-token", "--generate")
        dashboard = f"--include-dashboard={str(has_dashboard).lower()}"
        patient = ("env", "RAY_JOB_STOP_WAIT_TIME_S=60", with_commands())
        self.run(*patient, *RAY, "start", "--head", "--port=6379", dashboard, *self._node(resource, gpus))

    def join_ray(self, head: Host, resource: str, *, gpus: int = 0) -> None:
        """Join the cluster of a head, with its token; Ray believes that the host has `gpus`."""
        token = head.run("cat", "/tmp/home/.ray/auth_token").strip()
        self.run("sh", "-c", f"mkdir -p /tmp/home/.ray && printf %s {token} > /tmp/home/.ray/auth_token")
        self.run(*RAY, "start", f"--address={head.address}:6379", *self._node(resource, gpus))

    def rejoin_ray(self, head: Host | None, resource: str) -> None:
        """End the Ray of a cluster that is gone, or that has given this host up, and join one, or start it here."""
        self.run(*RAY, "stop", "--force")
        if head is None:
            self.start_ray(resource)
        else:
            self.join_ray(head, resource)

    def _node(self, resource: str, gpus: int) -> list[str]:
        """The resources of this host."""
        resources = json.dumps({resource: 1})
        store = f"--object-store-memory={STORE_BYTES}"
        counts = ["--num-cpus=4", f"--num-gpus={gpus}"]
        return [f"--node-ip-address={self.address}", f"--resources={resources}", *counts, store]

    def unplug(self) -> None:
        """Cut the host off."""
        _in_network(self.switch, "ip", "link", "set", self.cable, "down")

    def plug_in(self) -> None:
        """Connect the host again."""
        _in_network(self.switch, "ip", "link", "set", self.cable, "up")

    def kill(self) -> None:
        """Pull the plug: the kernel kills every process of the host."""
        os.kill(self.pid, signal.SIGKILL)


def with_commands() -> str:
    """The PATH, for `env`, by which `ray` and `agentrl` are found by their names."""
    return f"PATH={Path(sys.executable).parent}:{os.environ['PATH']}"


def join_all(head: Host, others: Mapping[Host, str], *, gpus: int = 0) -> None:
    """Let hosts join the cluster of a head side by side, each with its resource."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda host: host.join_ray(head, others[host], gpus=gpus), others))


def missing() -> str:
    """Why no hosts can be made here, "" if they can."""
    if os.geteuid() != 0:
        return "namespaces need root"
    if lacking := [tool for tool in ("ip", "nsenter", "unshare") if shutil.which(tool) is None]:
        return f"not installed: {', '.join(lacking)}"
    tried = subprocess.run(
        ["unshare", *UNSHARED, "bash", "-c", TRIED], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    return (tried.stderr.strip() or "unshare failed") if tried.returncode else ""


@contextmanager
def hosts(*names: str, shm_mib: int = 1024, are_patient: bool = False) -> Iterator[list[Host]]:
    """Make hosts on one network; on exit all their processes are killed."""
    with ExitStack() as stack:
        alone = ["unshare", "--net", "--fork", "--kill-child"]
        switch = stack.enter_context(_held(alone, "echo ready; exec sleep infinity"))
        for words in (("link", "add", "switch", "type", "bridge"), ("link", "set", "switch", "up")):
            _in_network(switch, "ip", *words)
        made = (_host(name, number, switch, shm_mib) for number, name in enumerate(names, 1))
        yield [replace(stack.enter_context(host), is_patient=are_patient) for host in made]


@contextmanager
def _host(name: str, number: int, switch: int, shm_mib: int) -> Iterator[Host]:
    with _held(["unshare", *UNSHARED], SETUP.format(name=name, shm_mib=shm_mib)) as pid:
        cable, address = f"cable{number}", f"{SUBNET}.{number}"
        _in_network(switch, "ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        _in_network(switch, "ip", "link", "set", cable, "master", "switch", "up")
        _in_network(pid, "ip", "address", "add", f"{address}/24", "dev", "eth0")
        _in_network(pid, "ip", "link", "set", "eth0", "up")
        yield Host(name, address, pid, switch, cable)


@contextmanager
def _held(unshare: Sequence[str], script: str) -> Iterator[int]:
    """Run a script in new namespaces; yields the id of its process when it has said "ready"."""
    process = subprocess.Popen([*unshare, "bash", "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", "the namespaces could not be set up"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield int(children[0])
    finally:
        process.kill()
        process.wait(WAIT_S)
        if process.stdout is not None:
            process.stdout.close()


def _in_network(pid: int, *words: str) -> None:
    done = subprocess.run(
        ["nsenter", "-t", str(pid), "--net", *words], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder that all hosts see under the same path."""
    with tempfile.TemporaryDirectory(prefix="agentrl-cluster-", dir="/var/tmp") as folder:
        yield Path(folder)
