"""`docker`: one hardened container per sandbox, its warden the container's first process.

Enforced: no network or new privileges; a read-only root with a tmpfs of `disk_bytes` in /tmp (SHARED_BYTES in
/dev/shm); no terminals; memory, processes and CPU by cgroups; the engine's seccomp profile plus the filter of
`seccomp`. Programs have their own user id and no capabilities; the warden has three, to change users and to kill.
TCP and UDP work within the sandbox if the engine counts their buffers: with cgroup v2, or in gVisor. If the engine has
gVisor's runtime (`runsc`), programs never reach this machine's kernel.
`python -m agentrl_sandbox.image` creates the image from this machine's Python and shell, without a registry. Packages
are part of the image (`--packages`), which lists them in a label.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.types import Ulimit
from docker.utils import kwargs_from_env

from agentrl_sandbox import boot, leases, seccomp
from agentrl_sandbox.channel import CHUNK_BYTES, Channel, SocketTransport
from agentrl_sandbox.errors import LostError, PackagesError, SandboxError, UnavailableError
from agentrl_sandbox.inside.child import NO_CORE
from agentrl_sandbox.leases import Lease
from agentrl_sandbox.local import sandbox
from agentrl_sandbox.ordered import OrderedSandbox
from agentrl_sandbox.packages import FOLDER, checked
from agentrl_sandbox.threads import in_thread
from agentrl_sandbox.types import Limits

IMAGE = "agentrl-sandbox:latest"
LABEL = "agentrl.sandbox"
PACKAGES_LABEL = "agentrl.packages"  # image label: names of the packages in FOLDER
WORK = "/tmp/work"
WARDEN = "0:0"
USERS = range(1 << 30, 1 << 31)  # one per sandbox, because the kernel has limits per user
SMALL_USERS = range(1 << 12, 1 << 16)  # an engine that maps users has no others
SHARED_BYTES = 8 << 20
EMPTY = "size=4k,mode=0755,ro"
CALL_S = 60
REMOVAL_S, RETRY_S = 30.0, 0.05
CONFLICT = 409
HEADER_BYTES = 8  # header of a piece of output: the stream's number, then the length
STDERR = 2
GO = {"amd64": "x86_64", "arm64": "aarch64"}  # names of processors that some engines use
METERS = {
    "1": (
        ("memory", "/sys/fs/cgroup/memory/memory.oom_control", "oom_kill"),
        ("processes", "/sys/fs/cgroup/pids/pids.events", "max"),
        ("cpu", "/sys/fs/cgroup/cpuacct/cpuacct.usage", ""),
    ),
    "2": (
        ("memory", "/sys/fs/cgroup/memory.events", "oom_kill"),
        ("processes", "/sys/fs/cgroup/pids.events", "max"),
        ("cpu", "/sys/fs/cgroup/cpu.stat", "usage_usec"),
    ),
}
T = TypeVar("T")


class DockerBackend:
    """Backend of containers; UnavailableError if no engine answers or the image is missing."""

    name = "docker"

    def __init__(self, packages: tuple[str, ...] = ()) -> None:
        self._client, self._packages = connect(), packages
        try:
            _check(packages, self._client.images.get(IMAGE).labels.get(PACKAGES_LABEL, ""))
            info = self._client.info()
        except ImageNotFound:
            self._client.close()
            raise UnavailableError(f"docker: no image {IMAGE}. Create it: {maker(packages)}") from None
        except PackagesError:
            self._client.close()
            raise
        self.runtime = "runsc" if "runsc" in info.get("Runtimes", {}) else ""
        self._version = str(info.get("CgroupVersion", "1"))
        self._address = engine()
        machine = str(info.get("Architecture"))  # the engine's, which may differ from ours
        # gVisor is a separate kernel that shares nothing.
        rules = seccomp.program(GO.get(machine, machine), has_internet=self._version == "2")
        self._rules = b"" if self.runtime else rules or b""
        options = " ".join(info.get("SecurityOptions") or ())
        self._users = SMALL_USERS if "rootless" in options or "userns" in options else USERS

    def describe(self) -> str:
        """Describe what enforces which limits here."""
        kernel = "gVisor (runsc)" if self.runtime else "this machine's kernel"
        calls = "" if self._rules or self.runtime else ", only the engine's seccomp filter"
        return f"containers on {kernel}{calls}; memory and processes by cgroup v{self._version}"

    async def create(self, limits: Limits) -> OrderedSandbox:
        """Start a warden as the first process of a new container."""
        lease = leases.write(Lease(leases.new_id(), self.name, leases.me(), docker=self._address))
        vessel = Container(self._client, lease)
        making = asyncio.ensure_future(_in_thread(lambda: vessel.start(self._settings(limits))))
        try:
            channel = Channel(await asyncio.shield(making))
            path, meters = _path(self._client), METERS[self._version]
            setup = boot.Setup(
                WORK,
                path,
                limits,
                uid=self._users.start + secrets.randbelow(len(self._users)),
                has_memory_cgroup=True,
                meters=meters,
                rules=self._rules,
                packages=FOLDER if self._packages else "",
                rooms=boot.ROOMS,
            )
            await boot.load(channel, is_compiled=False)
            await boot.begin(channel, setup)
        except LostError as error:
            await vessel.remove()
            raise LostError(f"docker: {error}: {making.result().stderr.decode(errors='replace')}") from error
        except BaseException:
            await asyncio.wait({making})
            await vessel.remove()
            raise
        return sandbox(lease.id, channel, vessel, limits)

    async def close(self) -> None:
        """Close the connection to the engine."""
        await _in_thread(self._client.close)

    def _settings(self, limits: Limits) -> dict[str, Any]:
        """Return the container's host configuration."""
        return {
            "network_mode": "none",
            "cap_drop": ["ALL"],
            "cap_add": ["SETUID", "SETGID", "KILL"],
            "security_opt": ["no-new-privileges"],
            "read_only": True,
            "tmpfs": {
                "/tmp": f"size={limits.disk_bytes},mode=1777,exec,nosuid,nodev",
                "/dev/pts": EMPTY,  # the whole machine has only a few thousand terminals
                "/dev/mqueue": EMPTY,
            },
            "ulimits": [Ulimit(name="core", soft=NO_CORE[0], hard=NO_CORE[1])],
            "shm_size": SHARED_BYTES,
            "mem_limit": limits.memory_bytes,
            "memswap_limit": limits.memory_bytes,
            "pids_limit": limits.processes + 1,
            "nano_cpus": int(limits.cpus * 1e9),
            "log_config": {"type": "none"},
            **({"runtime": self.runtime} if self.runtime else {}),
        }


class Container:
    """The container of one lease."""

    def __init__(self, client: docker.DockerClient, lease: Lease) -> None:
        self._client, self._lease = client, lease
        self._transport: DockerTransport | None = None

    def start(self, settings: dict[str, Any]) -> DockerTransport:
        """Create the container, attach to it and start it; blocks."""
        api = self._client.api
        api.create_container(
            IMAGE,
            boot.command("python3", self._lease.id),
            name=self._lease.id,
            user=WARDEN,
            working_dir="/",
            hostname="sandbox",
            environment=boot.SAME,
            stdin_open=True,
            labels={LABEL: self._lease.id},
            host_config=api.create_host_config(**settings),
        )
        streams = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        self._transport = DockerTransport(api.attach_socket(self._lease.id, params=streams))
        api.start(self._lease.id)
        return self._transport

    async def is_out_of_memory(self) -> bool:
        """Return whether the kernel killed it for lack of memory."""
        try:
            state = await _in_thread(lambda: self._client.api.inspect_container(self._lease.id)["State"])
        except SandboxError:
            return False
        return bool(state.get("OOMKilled"))

    async def remove(self) -> None:
        """Kill and remove the container, release its connection, and delete its lease; no call may be pending."""
        if self._transport:
            self._transport.close()
        await _in_thread(lambda: _remove(self._client, self._lease.id))
        leases.strike(self._lease)


class DockerTransport(SocketTransport):
    """The attached streams of a container: stdin out; stdout and stderr in, every piece with a header."""

    def __init__(self, attached: Any) -> None:
        self._attached = attached  # closes the connection when it is collected
        self.stderr = b""
        self._received = b""
        sock: socket.socket = attached._sock
        sock.settimeout(None)
        super().__init__(sock)

    async def receive(self) -> bytes:
        """Return some bytes of stdout, or b"" if the container has ended."""
        while True:
            stream, piece = self._next_piece()
            if stream == STDERR:
                self.stderr = (self.stderr + piece)[-4000:]
            elif piece:
                return piece
            else:
                data = await asyncio.get_running_loop().sock_recv(self._socket, CHUNK_BYTES)
                if not data:
                    return b""
                self._received += data

    def close(self) -> None:
        """Release the connection."""
        super().close()
        with suppress(OSError):
            self._attached.close()

    def _next_piece(self) -> tuple[int, bytes]:
        """Return stream and content of the next complete piece; (0, b"") if it has not arrived."""
        end = HEADER_BYTES + int.from_bytes(self._received[4:HEADER_BYTES], "big")
        if len(self._received) < max(end, HEADER_BYTES):
            return 0, b""
        stream, piece = self._received[0], self._received[HEADER_BYTES:end]
        self._received = self._received[end:]
        return stream, piece


def connect(address: str = "") -> docker.DockerClient:
    """Connect to the engine at an address (default: the environment's); UnavailableError if none answers."""
    address = address or engine()
    try:
        _check_listening(address)
        client = docker.DockerClient(address, timeout=CALL_S, tls=kwargs_from_env().get("tls", False))
        client.ping()
    except (DockerException, OSError) as error:
        raise UnavailableError(
            f"docker: no engine answers at {address} ({error}). Install docker.io with apt-get and start dockerd"
        ) from error
    return client


def engine() -> str:
    """Return the address of the engine in the environment."""
    return os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")


def maker(packages: Iterable[str]) -> str:
    """Return the command that creates the image with these packages."""
    words = ["python -m agentrl_sandbox.image", *(["--packages"] if packages else []), *packages]
    return " ".join(words)


def _check(packages: Sequence[str], label: str) -> None:
    """Raise PackagesError if the image lacks some of these packages."""
    included = checked(label.split())
    if missing := [name for name in packages if name not in included]:
        fix = f"Create one that does: {maker(dict.fromkeys([*included, *packages]))}"
        raise PackagesError(f"docker: the image {IMAGE} does not include the package {', '.join(missing)}. {fix}")


def _check_listening(address: str) -> None:
    """Raise OSError if nothing listens; docker's client would leak a socket then."""
    if address.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(CALL_S)
            probe.connect(address.removeprefix("unix://"))


def remove(address: str, lease_id: str) -> None:
    """Remove a container that another process left behind; blocks."""
    client = connect(address)
    try:
        _remove(client, lease_id)
    except DockerException as error:
        raise SandboxError(f"cannot remove the container {lease_id}: {error}") from error
    finally:
        client.close()


def _remove(client: docker.DockerClient, lease_id: str) -> None:
    """Remove a container, retrying while the engine reports a conflict (409) with another removal."""
    until = time.monotonic() + REMOVAL_S
    while True:
        try:
            client.api.remove_container(lease_id, force=True, v=True)
        except NotFound:
            return
        except APIError as error:
            if error.status_code != CONFLICT or time.monotonic() > until:
                raise
        time.sleep(RETRY_S)


def _path(client: docker.DockerClient) -> str:
    """Return the PATH of the image."""
    for entry in client.images.get(IMAGE).attrs["Config"].get("Env") or ():
        if entry.startswith("PATH="):
            return str(entry.removeprefix("PATH="))
    return "/usr/local/bin:/usr/bin:/bin"


async def _in_thread(call: Callable[[], T]) -> T:
    """Call the blocking client in a thread; its errors become SandboxError."""
    try:
        return await in_thread(call)
    except (DockerException, OSError) as error:
        raise SandboxError(f"docker: {error}") from error
