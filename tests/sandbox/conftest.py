"""Backends and sandboxes for the tests; what this machine lacks is skipped with the reason."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import warnings
from collections.abc import AsyncIterator, Coroutine, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from agentrl_sandbox import Backend, Limits, Sandbox, UnavailableError, choose, leases
from agentrl_sandbox.types import MIB

TIGHT = Limits(
    wall_s=10, cpu_s=10, output_bytes=1 << 16, memory_bytes=96 * MIB, processes=24, disk_bytes=8 * MIB, open_files=64
)
WALLED = ("bubblewrap", "docker")
LOCAL = (*WALLED, "process")
IDS: set[str] = set()  # of every sandbox of these tests


def running() -> set[str]:
    """The sandboxes of these tests that still have processes; the machine may have others."""
    return IDS & leases.marked().keys()


@cache
def backend_or_reason(name: str) -> Backend | str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return choose(name)
        except (UnavailableError, ImportError) as error:
            return str(error)


def backend(name: str) -> Backend:
    found = backend_or_reason(name)
    if isinstance(found, str):
        pytest.skip(found)
    return found


def finish(work: Coroutine[Any, Any, None]) -> None:
    """Do it outside the tests' event loops, whose place `asyncio.run` would take."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(work)
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.fixture(scope="session", autouse=True)
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Leases of these tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leases, "write", lambda lease, write=leases.write: IDS.add(lease.id) or write(lease))
        patch.setenv(leases.VARIABLE, str(tmp_path_factory.mktemp("leases")))
        yield leases.folder()


@pytest.fixture(scope="session", autouse=True)
def connections(registry: Path) -> Iterator[None]:
    """What backends hold open, closed at the end."""
    yield
    for name in LOCAL:
        if not isinstance(found := backend_or_reason(name), str):
            finish(found.close())


@pytest.fixture(scope="module")
def containers(connections: None) -> Iterator[dict[str, Sandbox]]:
    """A container takes a second to start: it serves test after test of one module, as long as it lives."""
    kept: dict[str, Sandbox] = {}
    yield kept
    for sandbox in kept.values():
        finish(sandbox.close())


@pytest.fixture(params=WALLED)
def walls(request: pytest.FixtureRequest) -> Backend:
    """Each backend that is a boundary."""
    return backend(request.param)


@pytest.fixture
async def sandbox(walls: Backend, containers: dict[str, Sandbox]) -> AsyncIterator[Sandbox]:
    """A sandbox with tight limits, of each backend that is a boundary."""
    if walls.name != "docker":
        fresh = await walls.create(TIGHT)
        yield fresh
        await fresh.close()
        return
    if "docker" in containers and not containers["docker"].is_healthy():
        await containers.pop("docker").close()
    if "docker" not in containers:
        containers["docker"] = await walls.create(TIGHT)
    yield containers["docker"]


@pytest.fixture(params=LOCAL)
async def any_sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """A fresh sandbox of each local backend."""
    fresh = await backend(request.param).create(TIGHT)
    yield fresh
    await fresh.close()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed one for localhost; its key is in the same file."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate with")
    path = tmp_path / "cert.pem"
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run([*words.split(), "-keyout", path, "-out", tmp_path / "own.pem"], check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + (tmp_path / "own.pem").read_bytes())
    return path
