"""Whether a checker approves of an answer.

It is asked in a process that is killed when it hangs, and not believed when it raises.
"""

import asyncio
import importlib.machinery
import json
import os
import pickle
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import cloudpickle
from agentrl_sandbox import SandboxError

from agentrl_code.cases import MISSING
from agentrl_code.checkers import LENGTH_BYTES, Told
from agentrl_code.replies import ForeignError
from agentrl_code.verdict import Result, Status

Checker = Callable[..., Any]
AT_ONCE = 8
START_S = 60.0
"""For a process to start, and to import what the checker needs."""
ATTEMPTS = 2
"""A process may be ended by others: only what ends two has itself to blame."""
_START = "from agentrl_code.checkers import main; main()"


class CheckerError(Exception):
    """A checker raised or hung. It is the answer's doing where the checker takes what is expected, else the task's."""

    def __init__(self, said: str, is_answers_doing: bool) -> None:
        super().__init__(said)
        self._is_answers_doing = is_answers_doing

    def result(self, asked: str, got: str) -> Result:
        """Return the result of the test."""
        if self._is_answers_doing:
            return Result(Status.FAILED, asked, got, reason=f"gave {got}, which the checker cannot take ({self})")
        return Result(Status.INVALID, asked, got, reason=f"the checker raised {self}", fault="task")


class Checkers:
    """Processes that run checkers, started when they are needed. Belongs to one event loop."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._seats = asyncio.Semaphore(at_once)
        self._idle: list[_Process] = []
        self._is_closed = False

    async def aclose(self) -> None:
        """End the processes."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        for process in idle:
            await process.end()

    async def is_approved(self, checker: Checker, given: Any, tree: Any, expected: Any, timeout_s: float) -> bool:
        """Return whether the checker says True within its time to the answer of this tree, nothing less.

        CheckerError when it raises or hangs.
        """
        verb, said = await self._asked((checker, given, (tree,), expected), timeout_s)
        if verb == "said":
            return bool(said)
        if verb == "foreign":
            raise ForeignError(said)
        takes_right = verb != "unfit" and (  # without an expectation there is nothing right to try
            not _says_something(expected) or (await self._asked((checker, given, (), expected), timeout_s))[0] == "said"
        )
        raise CheckerError(said, is_answers_doing=takes_right)

    async def _asked(self, question: tuple[Any, ...], timeout_s: float) -> Told:
        """The checker's reply, `ended` where it took two processes along, or `unfit` where it cannot be sent to one."""
        request = packed(question)
        for _ in range(ATTEMPTS):
            async with self._seats:
                reply = await self._one(request, timeout_s)
            if reply[0] != "ended":
                break
        return reply

    async def _one(self, request: bytes, timeout_s: float) -> Told:
        process, is_kept = self._idle.pop() if self._idle else await _Process.start(), False
        try:
            reply = await process.reply(request, timeout_s)
            is_kept = reply[0] not in ("hung", "ended") and not self._is_closed
        finally:
            if is_kept:
                self._idle.append(process)
            else:
                await process.end()
        return reply


class _Process:
    """One of the processes; see `agentrl_code.checkers` for what it does."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._requests, self._lines = process, process.stdin, process.stdout

    @classmethod
    async def start(cls) -> "_Process":
        """Return a new one, which finds the modules that this process finds."""
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-c", _START,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": path}, start_new_session=True,
            )  # fmt: skip
        except OSError as problem:
            raise SandboxError(f"no process for checkers can be started: {problem}") from problem
        return cls(process)

    async def reply(self, request: bytes, timeout_s: float) -> Told:
        """Its reply; `hung` or `ended` where none comes."""
        self._requests.write(len(request).to_bytes(LENGTH_BYTES, "big") + request)
        try:
            verb, said = await self._heard(START_S)
        except TimeoutError:
            raise SandboxError(f"a process for checkers was not ready within {START_S:g} s") from None
        if verb != "loaded":
            return "ended" if verb == "ended" else "unfit", said
        try:
            return await self._heard(timeout_s)
        except TimeoutError:
            return "hung", f"TimeoutError: it ran longer than {timeout_s:g} s"

    async def end(self) -> None:
        """Kill it, and what it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        if transport := getattr(self._process, "_transport", None):
            transport.close()  # what the checker has started may hold the other ends of the pipes

    async def _heard(self, within_s: float) -> Told:
        async with asyncio.timeout(within_s):
            line = await self._lines.readline()
        if not line:
            return "ended", "EOFError: its process ended"
        verb, said = json.loads(line)
        return verb, said


def _says_something(expected: Any) -> bool:
    """Return whether an expectation is one beside a checker, where None and an empty text stand for none."""
    return expected is not MISSING and expected is not None and not (type(expected) is str and not expected.strip())


def why_unfit(checker: Checker, expected: Any) -> str:
    """Why this checker cannot be asked in another process; '' where it can."""
    try:
        packed((checker, expected))
    except ValueError as problem:
        return f"has a checker that no other process can run: {problem}"
    return ""


def packed(value: tuple[Any, ...]) -> bytes:
    """Return a checker and what it is given, to be sent; ValueError where it holds what is of this process alone."""
    _by_value(getattr(value[0], "__module__", None))
    try:
        return bytes(cloudpickle.dumps(value))
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RuntimeError, ImportError) as problem:
        raise ValueError(f"{type(problem).__name__}: {problem}") from None


def _by_value(module: str | None) -> None:
    """Send the functions of a module that another process cannot import, such as an environment's single file."""
    found = sys.modules.get(module or "")
    if found and module and importlib.machinery.PathFinder.find_spec(module.partition(".")[0]) is None:
        cloudpickle.register_pickle_by_value(found)
