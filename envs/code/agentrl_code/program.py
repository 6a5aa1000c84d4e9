"""A program under grading: what happens when it is run as a script, or loaded and called."""

import asyncio
from dataclasses import dataclass
from typing import Any

from agentrl_sandbox import ExecResult, Limit, Limits, Python, Sandbox

from agentrl_code.dialogue import MANY_BYTES, Interpreter
from agentrl_code.replies import Reply

_TELL = 300
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
    """What a script printed, what went wrong with it ('' for nothing), whether that was a limit, and what it took."""

    stdout: str
    complaint: str
    is_over: bool
    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Answers:
    """The replies to the first requests, and why there are no more ('' when there is one for each)."""

    replies: tuple[Reply, ...]
    complaint: str


class Loaded:
    """The program as a module in a session, answering requests."""

    def __init__(self, program: str, sandbox: Sandbox, limits: Limits) -> None:
        self._program, self._interpreter = program, Interpreter("candidate", sandbox, limits)

    async def load(self, requests: list[Any]) -> Answers:
        """Load the program and have it answer; past a limit nothing that it answered counts."""
        return await self._ask(("load", self._program), ("serve", requests), count=len(requests))

    async def answer(self, request: Any) -> Answers:
        """Have the loaded program answer one more request."""
        return await self._ask(("serve", [request]), count=1)

    async def _ask(self, *calls: tuple[str, Any], count: int) -> Answers:
        said = await self._interpreter.order(*calls)
        if said.ending.hits:
            return Answers((), _limit(said.ending).replace("printed", "returned"))
        is_much = len(said.ending.stdout) > MANY_BYTES
        replies = await asyncio.to_thread(_read, said.frames) if is_much else _read(said.frames)
        if len(replies) > count + (len(calls) - 1):
            return Answers((), "answered more often than it was asked")
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
    """Run the program as `__main__`, where no file of an earlier run is; it must end by itself, with exit code 0."""
    ending = await sandbox.exec(Python(program), stdin.encode("utf-8", "surrogateescape"), limits, is_clean=True)
    stdout = ending.stdout.decode("utf-8", "surrogateescape")
    return Printed(stdout, _complaint(ending), bool(ending.hits), ending.wall_s, ending.cpu_s)


def _complaint(ending: ExecResult) -> str:
    if ending.hits:
        return _limit(ending)
    last = ending.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:_TELL]
    return f"ended with exit code {ending.exit_code}{': ' if last else ''}{last}" if ending.exit_code else ""


def _limit(ending: ExecResult) -> str:
    return ", ".join(sorted({_LIMITS[hit] for hit in ending.hits}))
