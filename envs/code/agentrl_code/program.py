"""A program under grading, run as a script or loaded and called."""

import asyncio
from dataclasses import dataclass
from typing import Any

from agentrl_sandbox import ExecResult, Limit, Limits, Python, Sandbox

from agentrl_code.dialogue import MANY_BYTES, Interpreter
from agentrl_code.replies import Reply

_MOST_STDERR = 300
_LIMITS = {
    Limit.TIME: "ran out of time",
    Limit.CPU: "ran out of time",
    Limit.MEMORY: "ran out of memory",
    Limit.OUTPUT: "printed too much",
    Limit.PROCESSES: "started too many processes",
    Limit.DISK: "wrote too much to disk",
}


@dataclass(frozen=True, slots=True)
class Printed:
    """Result of a script: its output, its failure ('' for none), whether it hit a limit, and its times."""

    stdout: str
    complaint: str
    is_over: bool
    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Answers:
    """Replies to the first requests, and why there are no more ('' if all are answered)."""

    replies: tuple[Reply, ...]
    complaint: str


class Loaded:
    """The program as a module in a session that answers requests."""

    def __init__(self, program: str, sandbox: Sandbox, limits: Limits) -> None:
        self._program, self._interpreter = program, Interpreter("candidate", sandbox, limits)

    async def load(self, requests: list[Any]) -> Answers:
        """Load the program and send requests; if a limit is hit, no answer counts."""
        return await self._ask(("load", self._program), ("serve", requests), count=len(requests))

    async def answer(self, request: Any) -> Answers:
        """Send one more request to the loaded program."""
        return await self._ask(("serve", [request]), count=1)

    async def _ask(self, *calls: tuple[str, Any], count: int) -> Answers:
        response = await self._interpreter.order(*calls)
        if response.ending.hits:
            return Answers((), _limit(response.ending).replace("printed", "returned"))
        is_much = len(response.ending.stdout) > MANY_BYTES
        replies = await asyncio.to_thread(_read, response.frames) if is_much else _read(response.frames)
        if len(replies) > count + (len(calls) - 1):
            return Answers((), "sent more answers than requested")
        if len(calls) > 1:
            if not replies:
                return Answers((), "ended while it was loaded")
            if replies[0].complaint:
                return Answers((), f"cannot be loaded: it {replies[0].complaint}")
            replies = replies[1:]
        return Answers(replies, "" if len(replies) == count else "ended the interpreter instead of answering")


def _read(frames: tuple[Any, ...]) -> tuple[Reply, ...]:
    return tuple(map(Reply.of, frames))


async def run_script(program: str, stdin: str, sandbox: Sandbox, limits: Limits) -> Printed:
    """Run the program as `__main__` without files of earlier runs; it must end by itself with exit code 0."""
    ending = await sandbox.exec(Python(program), stdin.encode("utf-8", "surrogateescape"), limits, is_clean=True)
    stdout = ending.stdout.decode("utf-8", "surrogateescape")
    return Printed(stdout, _complaint(ending), bool(ending.hits), ending.wall_s, ending.cpu_s)


def _complaint(ending: ExecResult) -> str:
    if ending.hits:
        return _limit(ending)
    last = ending.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:_MOST_STDERR]
    return f"ended with exit code {ending.exit_code}{': ' if last else ''}{last}" if ending.exit_code else ""


def _limit(ending: ExecResult) -> str:
    return ", ".join(sorted({_LIMITS[hit] for hit in ending.hits}))
