"""The parent's side of a cradle: start it, request workers from it, end them."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from agentrl_math.limits import START_S

GRACE_S = 1.0
_OWN_SIGNALS = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGXCPU)


@dataclass
class Worker:
    """A worker process, its socket, its nursery, and the number of answers it has given."""

    pid: int
    channel: socket.socket
    nursery: "Nursery"
    served: int = 0

    @property
    def cpu_s(self) -> float:
        """Its CPU time so far; 0 if the system does not report it."""
        fields = self._stat()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0

    @property
    def ended_itself(self) -> bool:
        """Whether its computation killed it (memory, stack, CPU time) rather than a signal from outside."""
        fields = self._stat()
        return bool(fields) and int(fields[49]) & 0x7F in _OWN_SIGNALS

    def _stat(self) -> list[str]:
        """Return the fields of /proc/PID/stat from the third on; [] if there are none."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return []


class Nursery:
    """One cradle process with imported modules, started for the first worker. Not thread-safe."""

    def __init__(self, *modules: str) -> None:
        self.modules = modules
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """The cradle's process id while it runs."""
        return self._process.pid if self._process else None

    def spawn(self) -> Worker:
        """Return a fresh worker; OSError if the cradle fails even after a restart."""
        try:
            return self._spawn()
        except OSError:
            self.close()
        try:
            return self._spawn()
        except OSError:
            self.close()
            raise

    def end(self, worker: Worker) -> None:
        """Kill a worker without waiting for it."""
        worker.channel.close()
        if self._control:
            with contextlib.suppress(OSError):
                self._control.send(f"kill {worker.pid}".encode())

    def close(self) -> None:
        """End the cradle with all its workers and wait for it."""
        process = self._process
        self._forget()
        if process:
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def abandon(self) -> None:
        """Forget the cradle without ending it, for a forked child, since it belongs to the parent."""
        if self._process:
            self._process.returncode = 0  # the parent waits for it
        self._forget()

    def _forget(self) -> None:
        if self._control:
            self._control.close()
        self._process = self._control = None

    def _spawn(self) -> Worker:
        control = self._control or self._start()
        control.settimeout(START_S)
        control.send(b"spawn")
        message, fds, _, _ = socket.recv_fds(control, 64, 1)
        if not message or not fds:
            raise ConnectionResetError("the process that forks verifiers has ended")
        return Worker(int(message), socket.socket(fileno=fds[0]), self)

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        source = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "agentrl_math.cradle", str(theirs.fileno()), *self.modules],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
        self._control = ours
        return ours
