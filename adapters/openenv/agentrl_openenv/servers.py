"""The servers of a folder: started with the first episode, ended with the process that started them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

import httpx
import yaml

from agentrl.errors import ConfigError
from agentrl_openenv.wire import ServerError

LAUNCH = Path(__file__).with_name("launch.py")
DEFAULT_APP = "server.app:app"
CHECK_S, END_S, PAUSE_S, MAX_LINES = 60.0, 10.0, 0.1, 20
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""How soon a server that did not start is started again while others run."""
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


class Server:
    """The server of a folder. Its process is replaced, with a new address, when it has ended."""

    def __init__(self, folder: Folder, start_s: float) -> None:
        self.url, self.log = "", Path(os.devnull)
        self._folder, self._start_s = folder, start_s
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = self._is_failed = False

    @property
    def is_ready(self) -> bool:
        """True if it has answered, and its process runs."""
        return self._is_ready and self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        """Start a new process in place of an earlier one, and wait until it answers. Raises ServerError."""
        self.end()
        if self._is_failed:
            self.log.unlink(missing_ok=True)
        self._is_failed = True
        prefix = f"agentrl-openenv-{self._folder.path.name}-"
        with NamedTemporaryFile(prefix=prefix, suffix=".log", delete=False) as log:
            self._process, self.log = self._run(log), Path(log.name)
        if reason := await self._fault(self._process):
            said = self.log.read_text(errors="replace").splitlines()[-MAX_LINES:]
            raise ServerError("\n".join([f"the server {reason}; {self.log} ends with", *said]))
        self._is_ready, self._is_failed = True, False

    def end(self) -> None:
        """Kill the server with its descendants, and reap it. The log of one that has not served to the end is kept."""
        if self._process is None:
            return
        if self.is_ready:
            self.log.unlink(missing_ok=True)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        assert self._process.stdin is not None, "it was started with one"
        self._process.stdin.close()
        self._process.wait(END_S)
        self._process, self._is_ready = None, False

    def _run(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        folder = self._folder
        with socket.create_server(("127.0.0.1", 0)) as listener:
            fd, self.url = listener.fileno(), f"http://127.0.0.1:{listener.getsockname()[1]}"
            try:
                return subprocess.Popen(
                    [folder.python, LAUNCH, str(fd), folder.app, folder.path],
                    stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder.path,
                    env=variables(), pass_fds=(fd,), start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise ServerError(f"{folder.path}: {folder.python} cannot be started: {error}") from error

    async def _fault(self, process: subprocess.Popen[bytes]) -> str:
        """Return why the server does not serve; '' once it does."""
        try:
            async with (
                asyncio.timeout(self._start_s),
                httpx.AsyncClient(timeout=self._start_s, trust_env=False) as client,
            ):
                while process.poll() is None:
                    with suppress(httpx.HTTPError):
                        if (await client.get(f"{self.url}/health")).is_success:
                            return ""
                    await asyncio.sleep(PAUSE_S)
        except TimeoutError:
            return f"did not answer GET /health within {self._start_s:g} s"
        return f"ended with exit code {process.returncode} before it served"


class Servers:
    """The servers of a folder."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = servers
        self._starting: dict[Server, asyncio.Task[None]] = {}
        self._failures: dict[Server, Failure] = {}

    async def start(self) -> None:
        """Start all of them. Raises ServerError if one cannot be started."""
        await asyncio.gather(*(server.start() for server in self._servers))

    async def urls(self, gone: Sequence[str] = ()) -> list[str]:
        """Return the addresses of those that run. Starts those that do not, and those at the addresses `gone`.

        Waits for that only if none runs. Raises ServerError if none can be started.
        """
        for server in self._servers:
            if not server.is_ready or server.url in gone:
                self._restart(server)
        while not (running := self._running()):
            if not self._starting:
                raise next((failure.error for failure in self._failures.values()), ServerError("all servers ended"))
            await asyncio.wait(self._starting.values(), return_when=asyncio.FIRST_COMPLETED)
        return running

    async def close(self) -> None:
        """End all of them. Idempotent."""
        tasks = list(self._starting.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for server in self._servers:
            server.end()

    def _restart(self, server: Server) -> None:
        """Start a server in the background, unless it is starting or has just failed while others run."""
        failure = self._failures.get(server)
        if server in self._starting or (failure and time.monotonic() < failure.until and self._running()):
            return
        task = self._starting[server] = asyncio.create_task(server.start())
        task.add_done_callback(partial(self._started, server))

    def _running(self) -> list[str]:
        return [server.url for server in self._servers if server.is_ready and server not in self._starting]

    def _started(self, server: Server, task: asyncio.Task[None]) -> None:
        del self._starting[server]
        before = self._failures.pop(server, None)
        if task.cancelled() or not (error := task.exception()):
            return
        pause_s = min(2 * before.pause_s, LONGEST_PAUSE_S) if before else FIRST_PAUSE_S
        self._failures[server] = Failure(error, pause_s, time.monotonic() + pause_s)
        if before is None:
            print(f"a server of OpenEnv cannot be started again; others go on: {error}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a server did not start, and until when it is not started again."""

    error: BaseException
    pause_s: float
    until: float


@asynccontextmanager
async def serving(folder: Folder, count: int, start_s: float) -> AsyncIterator[Servers]:
    """Have `count` servers of a folder while the context is open, each on a free port of its own.

    They also end when this process does. Raises ServerError.
    """
    servers = Servers([Server(folder, start_s) for _ in range(count)])
    try:
        await servers.start()
        yield servers
    finally:
        await servers.close()


def variables() -> dict[str, str]:
    """Return the environment variables of a server."""
    return {name: value for name, value in os.environ.items() if name not in OURS}
