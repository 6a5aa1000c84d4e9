"""Environments that run in this process and in another interpreter alike. Imports only what authors may."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import Field

from agentrl.env import (
    AgentEnv,
    Context,
    Env,
    EnvConfig,
    Episode,
    Limits,
    Message,
    Model,
    Reply,
    Signal,
    Task,
    Turn,
    reward,
    role,
    shared,
    start_process,
    tool,
)  # fmt: skip

S = 0.3
BRIEF = Limits(
    max_turns=6, setup_timeout_s=S, turn_timeout_s=S, tool_timeout_s=S, score_timeout_s=S, teardown_timeout_s=S
)  # fmt: skip


class ServiceError(Exception):
    """What a library raises when a service is down."""

    fault = "infra"


class Trips(EnvConfig):
    """Keys."""

    fault: str = ""
    how: str = "raise"
    turns: int = 3
    folder: str = ""
    weights: dict[tuple[int, int], float] = Field(default_factory=lambda: {(1, 2): 0.5})
    marks: frozenset[str] = frozenset({"one", "two", "three"})


class Chat(Env):
    """Asks `turns` times; `fault` names where it goes wrong, and `how`."""

    Config = Trips
    limits = Limits(max_turns=6)

    @shared
    @asynccontextmanager
    async def pool(self) -> AsyncIterator[str]:
        """Something to close."""
        self.write(f"opened in {os.getpid()}")
        yield "pool"
        self.write("closed")

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}-{n}", {"n": n, "secret": object()}) for n in range(20)]

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        await self.trip("setup")
        ctx.state.dice = ctx.rng.random()
        return [Message(role="user", content=f"task {task.data['n']}, dice {ctx.state.dice:.9f}, {self.pool}")]

    async def respond(self, turn: Turn, ctx: Context) -> Reply:
        await self.trip("respond")
        if turn.results:
            return Reply.go_on()
        return Reply.end() if turn.index + 1 >= self.config.turns else Reply.say(f"more, {ctx.rng.random():.9f} ✓")

    @tool
    async def double(self, number: int) -> int:
        """Twice the number."""
        await self.trip("tool")
        return 2 * number

    @reward(scope="turn", weight=0.5)
    def brevity(self, ctx: Context) -> float:
        return 1 / (1 + len(ctx.text))

    @reward
    async def length(self, ctx: Context) -> float:
        await self.trip("score")
        return float(len(ctx.text))

    @reward(scope="group", weight=2.0)
    def rank(self, episodes: list[Episode]) -> list[float]:
        return [float(sum(len(a.text) < len(b.text) for a in episodes)) for b in episodes]

    def success(self, ctx: Context) -> bool:
        return len(ctx.text) > 1

    async def teardown(self, ctx: Context) -> None:
        self.write(f"torn down {ctx.member}")
        await self.trip("teardown")

    def write(self, line: str) -> None:
        if self.config.folder:
            with (Path(self.config.folder) / "lines").open("a") as file:
                file.write(f"{line}\n")

    async def trip(self, place: str) -> None:
        if self.config.fault != place:
            return
        self.write(f"{place} in {os.getpid()}")
        match self.config.how:
            case "raise":
                raise KeyError("tripped")
            case "infra":
                raise ServiceError("the service is down")
            case "cancel":
                raise asyncio.CancelledError
            case "exit":
                sys.exit(3)
            case "hang":
                await asyncio.Event().wait()
            case "block":
                time.sleep(3600)  # noqa: ASYNC251 (what is tested)
            case "kill":
                print("what it said last")
                os.kill(os.getpid(), signal.SIGKILL)
            case "fork" if not (Path(self.config.folder) / "once").exists():
                (Path(self.config.folder) / "once").touch()
                if left := os.fork():
                    self.write(f"left {left}")
                    os.kill(os.getpid(), signal.SIGKILL)
                os.setsid()
                time.sleep(3600)  # noqa: ASYNC251 (the process that holds what its parent had open)
            case "once":
                mark = Path(self.config.folder) / "once"
                if not mark.exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)


class Hasty(Chat):
    """Whose every wait is short."""

    limits = BRIEF


class Agent(AgentEnv):
    """An agent that asks over HTTP."""

    Config = Trips
    limits = Limits(max_turns=4)

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}-{n}", n) for n in range(20)]

    async def play(self, task: Task, ctx: Context, model: Model) -> str:
        import httpx

        await Chat.trip(self, "play")  # type: ignore[arg-type]
        messages = [{"role": "user", "content": f"task {task.data}"}]
        async with httpx.AsyncClient(
            base_url=model.base_url, headers={"Authorization": f"Bearer {model.api_key}"}
        ) as http:
            for _ in range(self.config.turns):
                answer = await http.post(
                    "/chat/completions", json={"model": model.name, "messages": messages}, timeout=30
                )
                if answer.is_error:
                    raise RuntimeError(answer.json()["error"]["message"])
                messages += [answer.json()["choices"][0]["message"], {"role": "user", "content": "more"}]
        return str(messages[-2]["content"])

    @reward
    def length(self, ctx: Context) -> float:
        return float(len(ctx.result or ""))

    write = Chat.write


class Detached:
    """An object of a library that fails without its session."""

    def __repr__(self) -> str:
        raise RuntimeError("the session is closed")


class Unreadable(Chat):
    """Whose evidence has no text."""

    @reward
    def found(self, ctx: Context) -> Signal:
        return Signal("found", 1.0, evidence={"row": Detached()})


class Starting(Chat):
    """Starts processes that are in no group of its own process, and never ends them."""

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        daemon = await start_process("sh", "-c", "setsid sleep 600 >/dev/null & echo $!", stdout=subprocess.PIPE)
        left = await start_process("sleep", "600")
        led = subprocess.Popen(["sleep", "600"], start_new_session=True)  # noqa: ASYNC220 (returns at once)
        assert daemon.process.stdout
        orphan = int(await daemon.process.stdout.readline())
        self.write(f"started {os.getpid()} {left.process.pid} {led.pid} {orphan}")
        await self.trip("setup")
        return [Message(role="user", content="wait")]


class Asking(Chat):
    """Asks a partner everywhere."""

    @role
    def partner(self, messages: list[Message]) -> str:
        """Talks."""
        return "1"

    async def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="user", content=await self.partner.ask("begin"))]

    async def respond(self, turn: Turn, ctx: Context) -> Reply:
        number = await self.partner.ask(f"number {turn.text}", read=int)
        return Reply.end() if turn.index + 1 >= self.config.turns else Reply.say(str(number))

    @reward
    async def liked(self, ctx: Context) -> Signal:
        return await self.partner.score("Is it good?", answer=ctx.text)

    @reward(scope="group")
    async def chosen(self, episodes: list[Episode]) -> list[float]:
        best = await self.partner.ask("choose")
        return [float(one.member == len(best) % 3) for one in episodes]


class AskingAgent(Agent):
    """An agent that asks a partner over HTTP."""

    @role
    def partner(self, messages: list[Message]) -> str:
        """Talks."""
        return "1"

    async def play(self, task: Task, ctx: Context, model: Model) -> str:
        import httpx

        said = "begin"
        async with httpx.AsyncClient(
            base_url=model.base_url, headers={"Authorization": f"Bearer {model.api_key}"}
        ) as http:
            for name in ("partner", model.name, "partner", model.name):
                body = {"model": name, "messages": [{"role": "user", "content": said}]}
                answer = await http.post("/chat/completions", json=body, timeout=30)
                if answer.is_error:
                    raise RuntimeError(answer.json()["error"]["message"])
                said = f"number {answer.json()['choices'][0]['message']['content']}"
        return said


class TokenAgent(Agent):
    """An agent that writes token ids."""

    async def play(self, task: Task, ctx: Context, model: Model) -> str:
        tokens = model.tokens
        ids = list(range(5, 9))
        for _ in range(2):
            sampled = await tokens.generate(ids, 4)
            ids += [*sampled.ids, 7]
        return str(ids)


class LoopsAgent(Agent):
    """An agent that runs event loops of its own."""

    def play(self, task: Task, ctx: Context, model: Model) -> str:  # type: ignore[override]
        async def sampled() -> str:
            completion = await model.tokens.generate(range(5, 9), 4)
            return f"{await model.ask('hello')} {completion.ids}"

        return f"{asyncio.run(sampled())} {asyncio.run(sampled())}"
