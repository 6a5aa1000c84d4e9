"""The servers of a folder: started with the first episode, ended with the process that started them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

import httpx
import yaml

from agentrl.errors import ConfigError
from agentrl_openenv.wire import ServerError

LAUNCH = Path(__file__).with_name("launch.py")
DEFAULT_APP = "server.app:app"
CHECK_S, END_S, PAUSE_S, MAX_LINES = 60.0, 10.0, 0.1, 20
OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""Variables of this interpreter, which do not apply to that of the server."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of an environment of OpenEnv, and the interpreter that runs its server."""

    path: Path
    app: str
    python: Path

    @classmethod
    def read(cls, path: Path, python: str = "") -> Folder:
        """Find the app and the interpreter of a folder. Raises ConfigError if it is none of OpenEnv."""
        manifest = path / "openenv.yaml"
        try:
            about = yaml.safe_load(manifest.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"openenv:{path} has no openenv.yaml that can be read: {error}") from error
        app = about.get("app", DEFAULT_APP) if isinstance(about, dict) else None
        if not isinstance(app, str):
            raise ConfigError(f"{manifest}: `app` is no text; write the app of the server, for example {DEFAULT_APP}")
        own = path / ".venv" / "bin" / "python"
        chosen = Path(python).expanduser().absolute() if python else own if own.exists() else Path(sys.executable)
        return cls(path, app, chosen)

    def check(self) -> None:
        """Raise ConfigError unless the interpreter runs and has the server's uvicorn."""
        command = [str(self.python), "-c", "import uvicorn"]
        try:
            asked = subprocess.run(command, env=variables(), capture_output=True, text=True, timeout=CHECK_S)
        except (OSError, subprocess.SubprocessError) as error:
            raise ConfigError(
                f"openenv:{self.path}: {self.python} cannot be run: {error}; set --env.python_path"
            ) from error
        if asked.returncode:
            raise ConfigError(
                f"openenv:{self.path}: {self.python} cannot import uvicorn: install the folder there "
                f"({self.python} -m pip install {self.path}), or name another interpreter with --env.python_path"
            )


@dataclass(frozen=True, slots=True)
class Process:
    """One server process, and the file with its output."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path


@asynccontextmanager
async def serving(folder: Folder, count: int, start_s: float) -> AsyncIterator[Sequence[str]]:
    """Run `count` servers of a folder while the context is open; yields their addresses. Raises ServerError."""
    with ExitStack() as stack:
        started = [stack.enter_context(running(folder)) for _ in range(count)]
        for server in started:
            await _ready(server, start_s)
        yield [server.url for server in started]


@contextmanager
def running(folder: Folder) -> Iterator[Process]:
    """Start a server on a free port; kill it afterwards. It also ends when this process does."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        NamedTemporaryFile(prefix=f"agentrl-openenv-{folder.path.name}-", suffix=".log", delete=False) as log,
    ):
        fd, port = listener.fileno(), listener.getsockname()[1]
        try:
            process = subprocess.Popen(
                [folder.python, LAUNCH, str(fd), folder.app, folder.path],
                stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder.path,
                env=variables(), pass_fds=(fd,), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise ServerError(f"{folder.path}: {folder.python} cannot be started: {error}") from error
    try:
        yield Process(f"http://127.0.0.1:{port}", process, Path(log.name))
    finally:
        end(process)


async def _ready(server: Process, start_s: float) -> None:
    try:
        async with asyncio.timeout(start_s), httpx.AsyncClient(timeout=start_s, trust_env=False) as client:
            while server.process.poll() is None:
                with suppress(httpx.HTTPError):
                    if (await client.get(f"{server.url}/health")).is_success:
                        return
                await asyncio.sleep(PAUSE_S)
            reason = f"ended with exit code {server.process.returncode} before it served"
    except TimeoutError:
        reason = f"did not answer GET /health within {start_s:g} s"
    lines = server.log.read_text(errors="replace").splitlines()[-MAX_LINES:]
    raise ServerError("\n".join([f"the server {reason}; {server.log} ends with", *lines]))


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a server with its descendants, and reap it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    assert process.stdin is not None, "it was started with one"
    process.stdin.close()
    process.wait(END_S)


def variables() -> dict[str, str]:
    """Return the environment variables of a server."""
    return {name: value for name, value in os.environ.items() if name not in OURS}
