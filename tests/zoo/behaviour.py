"""Animals that affect other episodes, never end, or leave something behind."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO, Any, ClassVar

from agentrl.env import Context, Limits, Message, Reply, Task, Turn, reward, tool
from agentrl.errors import DeadlineError
from tests.zoo.good import Adder, Sums

PATIENT = 3600.0


class Dicey(Sums):
    """Draws from a generator that no seed controls."""

    caught_by = "twins"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [*super().setup(task, ctx), Message(role="user", content=f"Ticket {random.random()}.")]


class Mixed(Sums):
    """Keeps the question of the episode that began last."""

    caught_by = "state"
    pair: ClassVar[list[Any]] = [None]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        self.pair[0] = task.data
        return super().setup(task, ctx)

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text.strip() == str(sum(self.pair[0])))


class Crowded(Sums):
    """Fails when many episodes are open."""

    caught_by = "crowd"
    opened: ClassVar[list[int]] = [0]

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        self.opened[0] += 1
        if self.opened[0] > 40:
            raise ConnectionError("too many connections")
        await asyncio.sleep(0.01)
        return super().setup(task, ctx)

    def teardown(self, ctx: Context) -> None:
        self.opened[0] -= 1


class Sleepy(Sums):
    """Waits on the event loop."""

    caught_by = "event-loop"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        time.sleep(0.12)
        return super().setup(task, ctx)


class Drowsy(Adder):
    """Has a tool that waits on the event loop, and which its oracle does not call."""

    caught_by = "event-loop"
    oracle = Sums.oracle

    @tool
    def add(self, a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: the first number
            b: the second number
        """
        time.sleep(0.12)
        return a + b


class Faithful(Sums):
    """Waits in its teardown for an answer of the model."""

    caught_by = "hanging-agent"
    limits = Limits(teardown_timeout_s=PATIENT)

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        ctx.state.answered = asyncio.Event()
        return super().setup(task, ctx)

    def respond(self, turn: Turn, ctx: Context) -> Reply:
        ctx.state.answered.set()
        return Reply.end()

    async def teardown(self, ctx: Context) -> None:
        if hasattr(ctx.state, "answered"):
            await ctx.state.answered.wait()


class Stubborn(Adder):
    """Waits for the result of a tool that failed."""

    caught_by = "hanging-tool"
    limits = Limits(max_turns=3, turn_timeout_s=PATIENT)

    async def respond(self, turn: Turn, ctx: Context) -> Reply:
        if any(str(result["content"]).startswith("error") for result in turn.results):
            await asyncio.Event().wait()
        return super().respond(turn, ctx)


class Counting(Adder):
    """Has a tool that takes as many steps as the model says."""

    caught_by = "odd-calls"
    limits = Limits(max_turns=3, tool_timeout_s=0.5)

    @tool
    async def count(self, most: int) -> int:
        """Count to a number.

        Args:
            most: the number
        """
        reached = 0
        while reached < most:
            await asyncio.sleep(0)
            reached += 1
        return reached


class Blaming(Adder):
    """Takes a bad argument for a service that does not answer."""

    caught_by = "odd-calls"

    @tool
    def add(self, a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: the first number
            b: the second number
        """
        if min(a, b) < 0:
            raise self._refusal()
        return a + b

    def _refusal(self) -> Exception:
        return DeadlineError("the adder does not answer")


class Addressed(Blaming):
    """Has an error text that is another one each time: it contains an address, and nothing else gets it later."""

    caught_by = "odd-calls"
    kept: ClassVar[list[object]] = []

    def _refusal(self) -> Exception:
        self.kept.append(object())
        return ValueError(f"{self.kept[-1]} is negative")


class Credulous(Adder):
    """Reads a number where a tool may answer with an error."""

    caught_by = "odd-calls"

    def respond(self, turn: Turn, ctx: Context) -> Reply:
        ctx.state.sums = [int(str(result["content"])) for result in turn.results]
        return super().respond(turn, ctx)


class Attached(Sums):
    """Waits in its teardown for the verdict."""

    caught_by = "hanging-scorer"
    limits = Limits(teardown_timeout_s=PATIENT)

    @reward
    def right(self, ctx: Context) -> float:
        ctx.state.is_judged = True
        return float(ctx.text.strip() == str(sum(ctx.task.data)))

    async def teardown(self, ctx: Context) -> None:
        if ctx.turns and not hasattr(ctx.state, "is_judged"):
            await asyncio.Event().wait()


class Swallower(Sums):
    """Fails to end when its setup is cancelled."""

    caught_by = "cancellation"

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        ctx.state.work = asyncio.ensure_future(asyncio.sleep(0.05))
        await asyncio.shield(ctx.state.work)
        ctx.state.is_ready = True
        return super().setup(task, ctx)

    async def teardown(self, ctx: Context) -> None:
        assert ctx.state.is_ready


class Spinner(Sums):
    """Starts a thread in each episode."""

    caught_by = "leftovers"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        threading.Thread(
            target=threading.Event().wait, args=(30.0,), name=f"agentrl_{task.id}-poller", daemon=True
        ).start()
        return super().setup(task, ctx)


class Orphan(Sums):
    """Starts a process in each episode."""

    caught_by = "leftovers"
    children: ClassVar[list[subprocess.Popen[bytes]]] = []

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        self.children.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(20)"]))
        return super().setup(task, ctx)


class Open(Sums):
    """Keeps a file open."""

    caught_by = "leftovers"
    files: ClassVar[list[IO[bytes]]] = []

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        self.files.append(open(sys.executable, "rb"))  # noqa: SIM115, PTH123 (the fault)
        return super().setup(task, ctx)


class Connected(Sums):
    """Keeps a connection open."""

    caught_by = "leftovers"
    pairs: ClassVar[list[tuple[socket.socket, socket.socket]]] = []

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        self.pairs.append(socket.socketpair())
        return super().setup(task, ctx)


class Diary(Sums):
    """Writes a file of its own about each episode."""

    caught_by = "leftovers"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        descriptor, _ = tempfile.mkstemp(prefix="sums-", dir="/tmp")
        os.close(descriptor)
        return super().setup(task, ctx)


class Announcing(Sums):
    """Puts its task into an environment variable."""

    caught_by = "leftovers"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        os.environ["AGENTRL_SUMS_TASK"] = task.id
        return super().setup(task, ctx)


class Wandering(Sums):
    """Changes the working folder."""

    caught_by = "leftovers"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        os.chdir("/")
        return super().setup(task, ctx)


class Vanishing(Sums):
    """Changes the working folder to one that it removes."""

    caught_by = "leftovers"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
        return super().setup(task, ctx)


class Litter(Sums):
    """Makes temporary folders and forgets them."""

    caught_by = "leftovers"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        tempfile.mkdtemp(prefix="sums-")
        return super().setup(task, ctx)
