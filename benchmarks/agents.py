"""CPU milliseconds per turn of one two-turn tool task: in step mode, and of agents that call the endpoint.

    python -m benchmarks.agents [--episodes 256] [--rounds 3] [--crowd 3000] [--verifiers PYTHON] [--openenv PYTHON]

One process has worker code, its garbage collector set as in a rollout worker, renderer (the model's tokenizer) and
endpoint; the scripted engine costs next to nothing. `step` is the step mode. `agent` is what this process spends on
agents that call from another one: the share of agentrl. In `httpx` and `sdk` the agents run in this process, through
httpx or the OpenAI SDK, and their share counts. `verifiers` (its agent, its interception server and its client of a
model in another process) and `openenv` (its client and its server; no model) run in interpreters of their own, see
benchmarks/rivals. `ratios` compares every arm with the step mode. `crowd` plays as many agents at once, and then again
beside one that hangs: peak memory per episode, CPU of the others, and the seconds until they have ended; the last line
is the figures as JSON.
"""

# ruff: noqa: ARG002 (the methods that agentrl calls ignore arguments)
from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
from transformers import AutoTokenizer

from agentrl.config.models import locate
from agentrl.config.schema import ModelSection
from agentrl.endpoint import Answer, Ask, Endpoint, Model, Responder
from agentrl.engine.client import EngineClient
from agentrl.engine.scripted import ScriptedEngine
from agentrl.engine.server import EngineServer
from agentrl.env import AgentEnv, Context, Env, EnvDriver, Limits, Message, Task, reward, tool
from agentrl.rollout.episode import EpisodeRunner, EpisodeRuntime
from agentrl.rollout.renderer import load_renderer
from agentrl.rollout.worker import spare_collections
from agentrl.types import EpisodeRequest, EpisodeSettings, SampleId
from benchmarks.timing import Peak, alternated, last_line, median

QUESTION = "What is 17 + 25? Use the tool."
CALL = '<tool_call>{"name": "add", "arguments": {"a": 17, "b": 25}}</tool_call>'
ANSWER = "It is 42."
TURNS, CONTEXT, DEADLINE_S = 2, 4096, 600.0
LIMITS = httpx.Limits(max_connections=8)
"""httpx searches its pool for every request that waits: more connections cost more."""
ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
TOOLS: Any = [{"type": "function", "function": ADD}]
RIVALS = {"verifiers": "verifiers==0.4.0", "openenv": "openenv==0.10.0"}
"""Packages by their modules."""
MISSING = """{python} has no {module}. Make an interpreter for it:
    python -m venv /tmp/rival-{module} && /tmp/rival-{module}/bin/pip install {package}
and give --{module} /tmp/rival-{module}/bin/python"""
Chat = Callable[[list[dict[str, Any]]], Awaitable[dict[str, Any]]]


class Stepped(Env):
    """The task in step mode."""

    limits = Limits(max_turns=4)
    blocking = False

    def tasks(self, split: str) -> list[Task]:
        return [Task(split, 42)]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="user", content=QUESTION)]

    @tool
    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @reward
    def right(self, ctx: Context) -> float:
        return float(str(ctx.task.data) in ctx.text)


async def agent(chat: Chat) -> str:
    """Ask, call the tool, ask again."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
    while calls := (reply := await chat(messages)).get("tool_calls"):
        numbers = json.loads(calls[0]["function"]["arguments"])
        result = {"role": "tool", "tool_call_id": calls[0]["id"], "content": str(sum(numbers.values()))}
        messages += [reply, result]
    return str(reply["content"])


class Driven(AgentEnv):
    """The task with an agent that drives."""

    http: httpx.AsyncClient
    hanging: int = -1
    """The member whose agent hangs."""

    def tasks(self, split: str) -> list[Task]:
        return [Task(split, 42)]

    async def play(self, task: Task, ctx: Context, model: Model) -> str:
        if ctx.member == self.hanging:
            await asyncio.Event().wait()
        return await agent(self._chat(model))

    def _chat(self, model: Model) -> Chat:
        return with_httpx(self.http, model)

    @reward
    def right(self, ctx: Context) -> float:
        return float(str(ctx.task.data) in ctx.result)


class DrivenBySdk(Driven):
    """The same through the OpenAI SDK."""

    def _chat(self, model: Model) -> Chat:
        return with_sdk(model)


def with_httpx(http: httpx.AsyncClient, model: Model) -> Chat:
    """Return a chat through a shared httpx client."""
    url, headers = f"{model.base_url}/chat/completions", {"authorization": f"Bearer {model.api_key}"}

    async def chat(messages: list[dict[str, Any]]) -> dict[str, Any]:
        body = {"model": model.name, "messages": messages, "tools": TOOLS}
        response = await http.post(url, json=body, headers=headers)
        message: dict[str, Any] = response.json()["choices"][0]["message"]
        return message

    return chat


def with_sdk(model: Model) -> Chat:
    """Return a chat through the client of the episode."""
    client = model.client

    async def chat(messages: list[dict[str, Any]]) -> dict[str, Any]:
        completion = await client.chat.completions.create(model=model.name, messages=messages, tools=TOOLS)  # type: ignore[arg-type]
        return completion.choices[0].message.model_dump(exclude_none=True)

    return chat


class Clients:
    """Agents in a process of their own, of which `episodes` start at once."""

    def __init__(self, pipe: Connection, episodes: int) -> None:
        self._pipe, self._episodes = pipe, episodes
        self._asked: list[tuple[str, str]] = []
        self._answers: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

    async def play(self, model: Model) -> str:
        """Let one of the agents call the model; return its answer."""
        number, answers = len(self._asked), self._answers
        self._asked.append((model.base_url, model.api_key))
        if len(self._asked) == self._episodes:
            self._pipe.send(self._asked)
            self._asked, self._answers = [], asyncio.get_running_loop().create_future()
            answers.set_result(await asyncio.to_thread(self._pipe.recv))
        return (await answers)[number]


def drive(pipe: Connection) -> None:
    """Run agents for each list of endpoints and keys, until the pipe closes."""

    async def driving() -> None:
        async with httpx.AsyncClient(limits=LIMITS, timeout=DEADLINE_S) as http:
            while True:
                try:
                    asked = await asyncio.to_thread(pipe.recv)
                except EOFError:
                    return
                chats = (with_httpx(http, Model(url, key)) for url, key in asked)
                pipe.send(await asyncio.gather(*map(agent, chats)))

    asyncio.run(driving())


class DrivenElsewhere(Driven):
    """The same with agents in another process: what this one spends is the share of agentrl."""

    clients: Clients

    async def play(self, task: Task, ctx: Context, model: Model) -> str:
        return await self.clients.play(model)


class OneHangs(DrivenBySdk):
    """The same, where the agent of one member hangs."""

    hanging = 0


async def played(env_class: type[Env], episodes: int, tokenizer: Any, hanging: int = 0) -> float:
    """Play episodes at once, of which so many hang; return the CPU milliseconds per turn of the others."""
    call, answer = ([*tokenizer.encode(text), tokenizer.eos_token_id] for text in (CALL, ANSWER))
    firsts: set[int] = set()

    def reply(prompt: tuple[int, ...], _: int) -> list[int]:
        """Call the tool after the first prompt, which is the shortest and the same in all episodes."""
        firsts.add(len(prompt))
        return call if len(prompt) == min(firsts) else answer

    engine = await ScriptedEngine.ready(reply, vocab_size=len(tokenizer), max_model_len=CONTEXT)
    client, endpoint = EngineClient([EngineServer(engine)], "agents"), Endpoint(CONTEXT)
    runtime = EpisodeRuntime(
        lambda turns: EnvDriver(env_class(), turns), load_renderer(tokenizer), client, CONTEXT, endpoint
    )
    settings = EpisodeSettings(1.0, 200, 0, DEADLINE_S, DEADLINE_S)
    requests = [EpisodeRequest(SampleId(0, n), 0, "train", 0, 0, settings) for n in range(episodes)]
    began = time.process_time()
    running = [asyncio.create_task(EpisodeRunner(request, runtime).run()) for request in requests]
    trajectories = await asyncio.gather(*running[hanging:])
    spent = time.process_time() - began
    for task in running[:hanging]:
        task.cancel()
    await asyncio.gather(*running[:hanging], return_exceptions=True)
    await endpoint.close()
    await client.close()
    for trajectory in trajectories:
        assert (trajectory.error, trajectory.reward, trajectory.turns) == ("", 1.0, TURNS), trajectory
    return 1e3 * spent / (TURNS * episodes)


class Canned(Responder):
    """Calls the tool, and answers when it has the result."""

    async def answer(self, ask: Ask) -> Answer:
        if ask.messages[-1]["role"] == "tool":
            return Answer(Message(role="assistant", content=ANSWER))
        function: Any = {"name": "add", "arguments": {"a": 17, "b": 25}}
        calls: Any = [{"id": "call00000", "type": "function", "function": function}]
        return Answer(Message(role="assistant", content="", tool_calls=calls))

    async def count(self, ask: Ask) -> int:
        """Return that there are no tokens."""
        return 0

    async def deliver(self, answer: Answer, is_awaited: Callable[[], bool]) -> bool:
        """Do nothing."""
        return True


def serve(pipe: Connection) -> None:
    """Serve canned answers until the pipe closes."""

    async def serving() -> None:
        endpoint = Endpoint(CONTEXT)
        async with endpoint.open(Canned()) as model:
            pipe.send((model.base_url, model.api_key))
            await asyncio.to_thread(pipe.poll, None)
        await endpoint.close()

    asyncio.run(serving())


@asynccontextmanager
async def elsewhere(target: Callable[[Connection], None]) -> AsyncIterator[Connection]:
    """Run a function in a process of its own that ends when the pipe to it closes."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    yield ours
    ours.close()
    process.join(10)


class Rival:
    """Another library's episodes, in a process of its own interpreter that plays them for each line it gets."""

    def __init__(self, module: str, python: str, *arguments: str, key: str = "") -> None:
        script = Path(__file__).parent / "rivals" / f"{module}_sums.py"
        self._module = module
        self._process = subprocess.Popen(
            [python, script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "RIVAL_KEY": key, "PYTHONPATH": ""},
        )

    async def play(self) -> dict[str, float]:
        """Play the episodes once; return the CPU milliseconds per turn. Raises SystemExit if the process ended."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), DEADLINE_S)
        if not line:
            raise SystemExit(f"the episodes of {self._module} ended with exit code {process.wait(DEADLINE_S)}")
        found: dict[str, float] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process, which ends when its input does."""
        try:
            self._process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@asynccontextmanager
async def rivals(pythons: dict[str, str], episodes: int) -> AsyncIterator[dict[str, Rival]]:
    """Start the other libraries' processes."""
    async with AsyncExitStack() as stack:
        running: dict[str, Rival] = {}
        for module, python in pythons.items():
            if module == "verifiers":
                pipe = await stack.enter_async_context(elsewhere(serve))
                url, key = await asyncio.to_thread(pipe.recv)
                running[module] = Rival(module, python, url, str(episodes), key=key)
            else:
                running[module] = Rival(module, python, str(episodes))
            stack.callback(running[module].close)
        yield running


def interpreter(name: str) -> str:
    """Return the path of an interpreter. Raises ArgumentTypeError."""
    if (found := shutil.which(name)) is None:
        raise argparse.ArgumentTypeError(f"{name} cannot be run")
    return str(Path(found).absolute())


def check_rivals(pythons: dict[str, str]) -> None:
    """Raise SystemExit, and say what to do, if an interpreter lacks its library."""
    for module, python in pythons.items():
        found = subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False, cwd="/")
        if found.returncode:
            raise SystemExit(MISSING.format(python=python, module=module, package=RIVALS[module]))


async def crowded(episodes: int, tokenizer: Any) -> dict[str, float]:
    """Return the memory of an episode, and seconds and CPU of a crowd without and with an agent that hangs."""
    taken: dict[str, float] = {}
    with Peak() as peak:
        for name, env_class in (("", DrivenBySdk), ("_beside_a_hang", OneHangs)):
            began = time.perf_counter()
            taken[f"cpu_ms_per_turn{name}"] = await played(
                env_class, episodes, tokenizer, max(env_class.hanging + 1, 0)
            )
            taken[f"seconds{name}"] = time.perf_counter() - began
    return {"episodes": episodes, "kib_per_episode": (peak.most - peak.before) / episodes / 1024, **taken}


async def measure(episodes: int, rounds: int, crowd: int, pythons: dict[str, str]) -> dict[str, Any]:
    """Return the median milliseconds of every arm, their ratios to the step mode, and the crowd."""
    tokenizer = AutoTokenizer.from_pretrained(locate(ModelSection().name))
    await played(DrivenBySdk, 16, tokenizer)  # so that no import counts
    spare_collections()
    crowd_of = await crowded(crowd, tokenizer) if crowd else {}  # first: nothing has grown the process yet
    async with (
        httpx.AsyncClient(limits=LIMITS, timeout=DEADLINE_S) as http,
        elsewhere(drive) as pipe,
        rivals(pythons, episodes) as running,
    ):
        Driven.http, DrivenElsewhere.clients = http, Clients(pipe, episodes)
        arms: dict[str, Callable[[], Awaitable[dict[str, float]]]] = {
            "step": lambda: _ms(played(Stepped, episodes, tokenizer)),
            "agent": lambda: _ms(played(DrivenElsewhere, episodes, tokenizer)),
            "httpx": lambda: _ms(played(Driven, episodes, tokenizer)),
            "sdk": lambda: _ms(played(DrivenBySdk, episodes, tokenizer)),
            **{module: rival.play for module, rival in running.items()},
        }
        taken = await alternated(rounds, arms)
    found = {name: median([row["ms"] for row in rows]) for name, rows in taken.items()}
    ratios = {name: ms / found["step"] for name, ms in found.items()}
    return {"episodes": episodes, "cpu_ms_per_turn": found, "ratios": ratios, "crowd": crowd_of}


async def _ms(measured: Awaitable[float]) -> dict[str, float]:
    return {"ms": await measured}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=256, help="episodes at once")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--crowd", type=int, default=3000, help="episodes of the crowd; 0: none")
    for module, package in RIVALS.items():
        parser.add_argument(
            f"--{module}",
            type=interpreter,
            metavar="PYTHON",
            help=f"an interpreter with {package}; without, no such arm",
        )
    args = parser.parse_args()
    pythons = {module: python for module in RIVALS if (python := getattr(args, module))}
    check_rivals(pythons)
    print(last_line("agents", asyncio.run(measure(args.episodes, args.rounds, args.crowd, pythons))))


if __name__ == "__main__":
    main()
