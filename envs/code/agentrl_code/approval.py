"""Verdicts of checkers, which run in processes that are killed if they hang. A checker that raises decides nothing."""

import asyncio
import importlib.machinery
import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
from agentrl_sandbox import SandboxError

from agentrl.env import GroupProcess, start_process
from agentrl_code.cases import MISSING
from agentrl_code.checkers import LENGTH_BYTES, CheckerReply
from agentrl_code.replies import ForeignError
from agentrl_code.verdict import Result, Status

Checker = Callable[..., Any]
AT_ONCE = 8
START_S = 60.0
"""Time for a process to start and to import what the checker needs."""
ATTEMPTS = 2
"""A process may be killed from outside: a checker is blamed only if two processes end."""
_START = "from agentrl_code.checkers import main; main()"


class CheckerError(Exception):
    """A checker raised or hung. The answer is at fault if the checker accepts the expected result, else the task."""

    def __init__(self, message: str, is_answers_fault: bool) -> None:
        super().__init__(message)
        self._is_answers_fault = is_answers_fault

    def result(self, asked: str, got: str) -> Result:
        """Return the result of the test."""
        if self._is_answers_fault:
            return Result(Status.FAILED, asked, got, reason=f"gave {got}, which the checker cannot handle ({self})")
        return Result(Status.INVALID, asked, got, reason=f"the checker raised {self}", fault="task")


class Checkers:
    """Processes that run checkers, started on demand. Belongs to one event loop."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._seats = asyncio.Semaphore(at_once)
        self._idle: list[_Process] = []
        self._is_closed = False

    async def aclose(self) -> None:
        """Kill the processes."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        for process in idle:
            await process.end()

    async def is_approved(self, checker: Checker, args: Any, tree: Any, expected: Any, timeout_s: float) -> bool:
        """Return whether the checker returns True, and nothing else, for the answer with this tree.

        Raises CheckerError if it raises or hangs.
        """
        kind, content = await self._reply((checker, args, (tree,), expected), timeout_s)
        if kind == "returned":
            return bool(content)
        if kind == "foreign":
            raise ForeignError(content)
        accepts_expected = kind != "unfit" and (  # without an expectation there is no right answer to try
            not _is_expectation(expected)
            or (await self._reply((checker, args, (), expected), timeout_s))[0] == "returned"
        )
        raise CheckerError(content, is_answers_fault=accepts_expected)

    async def _reply(self, question: tuple[Any, ...], timeout_s: float) -> CheckerReply:
        """Return the checker's reply; `ended` if two processes ended, `unfit` if it cannot be loaded there."""
        request = packed(question)
        for _ in range(ATTEMPTS):
            async with self._seats:
                reply = await self._one(request, timeout_s)
            if reply[0] != "ended":
                break
        return reply

    async def _one(self, request: bytes, timeout_s: float) -> CheckerReply:
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
    """One process that runs `agentrl_code.checkers.main`."""

    def __init__(self, group: GroupProcess) -> None:
        assert group.process.stdin is not None
        assert group.process.stdout is not None
        self.group, self.end = group, group.end
        self._requests, self._lines = group.process.stdin, group.process.stdout

    @classmethod
    async def start(cls) -> "_Process":
        """Start a process with the same module search path as this one."""
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        try:
            return cls(await start_process(
                sys.executable, "-P", "-c", _START, env=os.environ | {"PYTHONPATH": path},
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            ))  # fmt: skip
        except OSError as problem:
            raise SandboxError(f"cannot start a process for checkers: {problem}") from problem

    async def reply(self, request: bytes, timeout_s: float) -> CheckerReply:
        """Return the reply; `hung` or `ended` if there is none."""
        self._requests.write(len(request).to_bytes(LENGTH_BYTES, "big") + request)
        try:
            kind, content = await self._read(START_S)
        except TimeoutError:
            raise SandboxError(f"a process for checkers was not ready within {START_S:g} s") from None
        if kind != "loaded":
            return "ended" if kind == "ended" else "unfit", content
        try:
            return await self._read(timeout_s)
        except TimeoutError:
            return "hung", f"TimeoutError: it ran longer than {timeout_s:g} s"

    async def _read(self, within_s: float) -> CheckerReply:
        async with asyncio.timeout(within_s):
            line = await self._lines.readline()
        if not line:
            return "ended", "EOFError: its process ended"
        kind, content = json.loads(line)
        return kind, content


def _is_expectation(expected: Any) -> bool:
    """Return whether something is expected; together with a checker, None and empty text mean nothing."""
    return expected is not MISSING and expected is not None and not (type(expected) is str and not expected.strip())


def why_unfit(checker: Checker, expected: Any) -> str:
    """Return why this checker cannot run in another process; '' if it can."""
    try:
        packed((checker, expected))
    except ValueError as problem:
        return f"has a checker that no other process can run: {problem}"
    return ""


def packed(value: tuple[Any, ...]) -> bytes:
    """Pickle a checker and its arguments; ValueError if they contain something bound to this process."""
    _by_value(getattr(value[0], "__module__", None))
    try:
        return bytes(cloudpickle.dumps(value))
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RuntimeError, ImportError) as problem:
        raise ValueError(f"{type(problem).__name__}: {problem}") from None


def _by_value(module: str | None) -> None:
    """Pickle functions by value if another process cannot import their module, such as an environment's single file."""
    found = sys.modules.get(module or "")
    if found and module and importlib.machinery.PathFinder.find_spec(module.partition(".")[0]) is None:
        cloudpickle.register_pickle_by_value(found)
