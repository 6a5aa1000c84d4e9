"""Milliseconds that tools take: a calculation, a search, Python, an MCP server's start, call and end, a whole episode.

python -m benchmarks.tools [--documents 100000] [--rounds 5]; the last line is the figures as JSON. Each figure is the
least of the rounds, so that a busy machine spoils it as little as possible. An episode of `search` is the oracle's: two
searches in one turn, an answer, and the scoring; a thousand of them run at once. `python` is called in a session that
runs already, as the first call of an episode while the pool has sandboxes ready, and as the first of a new pool.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from agentrl_search import SearchEnv, world
from agentrl_tools import Document, Index, McpServer, Workspace, close_sandboxes
from agentrl_tools.calculator import calculate
from agentrl_tools.workspace import pools

from agentrl.env import EnvDriver, StopReason, close_shared
from benchmarks.timing import last_line

SERVER = Path(__file__).parents[1] / "tests/unit/tools/mcp_server.py"
EXPRESSION = "(1234.5 * 67 - 8/9)^2 / sqrt(16) + comb(20, 10)"
EPISODES = 1000


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000, help="size of the corpus that is searched")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sandbox", default="auto", help="backend that the Python of a model runs in")
    args = parser.parse_args()
    index, build_s = built(args.documents)
    words = [document.title for document in corpus(100)]
    figures = {
        "calculation_ms": await least(args.rounds, calculations) / 1000,
        "index_documents": args.documents,
        "index_build_ms": build_s * 1e3,
        "search_ms": await least(args.rounds, lambda: searches(index, words)) / len(words),
        "python_backend": pools.backend(args.sandbox).name,
        "python_call_ms": await python_call(args.rounds, args.sandbox),
        "python_first_call_ms": await python_first_call(args.rounds, args.sandbox),
        "python_first_call_of_process_ms": await least(args.rounds, lambda: python_in_new_pool(args.sandbox)),
        "mcp_start_and_end_ms": await least(args.rounds, mcp_server),
        "mcp_call_ms": await mcp_call(args.rounds),
        "search_episode_ms": await least(args.rounds, episodes) / EPISODES,
    }
    await close_shared()
    await close_sandboxes()
    print(last_line("tools", figures))


async def least(rounds: int, arm: Callable[[], Awaitable[object]]) -> float:
    """The least milliseconds of several runs, after one of warm-up."""
    await arm()
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        await arm()
        taken.append((time.perf_counter() - began) * 1e3)
    return min(taken)


async def calculations() -> None:
    for _ in range(1000):
        calculate(EXPRESSION)


def corpus(size: int) -> list[Document]:
    """Documents of sixty words each, drawn from the words of the built-in world."""
    rng = random.Random(0)
    words = " ".join(document.text for document in world.documents()).split()
    return [Document(" ".join(rng.choices(words, k=3)), " ".join(rng.choices(words, k=60))) for _ in range(size)]


def built(size: int) -> tuple[Index, float]:
    documents = corpus(size)
    began = time.perf_counter()
    return Index(documents), time.perf_counter() - began


async def searches(index: Index, queries: list[str]) -> None:
    for query in queries:
        await index.find(query, 3)


async def python_call(rounds: int, backend: str) -> float:
    async with Workspace("python", backend=backend) as (python,):

        async def calls() -> None:
            for number in range(100):
                assert await python.run(code=f"{number} + 1") == str(number + 1)

        return await least(rounds, calls) / 100


async def python_first_call(rounds: int, backend: str) -> float:
    """Of an episode: the pool has started sandboxes while the episode before it was under way."""
    taken = []
    for _ in range(rounds + 1):
        async with Workspace("python", backend=backend) as (python,):
            await until_ready()
            began = time.perf_counter()
            await python.run(code="1")
            taken.append((time.perf_counter() - began) * 1e3)
    return min(taken[1:])


async def until_ready() -> None:
    counts = [pool.count for pool in pools.own_pools().pools.values()]
    while any(count.starting or count.closing for count in counts):
        await asyncio.sleep(0.01)
        counts = [pool.count for pool in pools.own_pools().pools.values()]


async def python_in_new_pool(backend: str) -> None:
    await close_sandboxes()
    async with Workspace("python", backend=backend) as (python,):
        await python.run(code="1")


async def mcp_server() -> None:
    async with McpServer([sys.executable, str(SERVER), "well"]):
        pass


async def mcp_call(rounds: int) -> float:
    async with McpServer([sys.executable, str(SERVER), "well"], only=["add"]) as (add,):
        return await least(rounds, lambda: asyncio.gather(*(add.run(a=n, b=1) for n in range(100)))) / 100


async def episodes() -> None:
    await asyncio.gather(*map(episode, range(EPISODES)))


async def episode(number: int) -> None:
    env = SearchEnv()
    driver = EnvDriver(env)
    task = await driver.task("train", number % 800)
    await driver.reset(task, member=number)
    for turn in env.oracle(task):  # type: ignore[union-attr]
        await driver.step(turn)
    await driver.finish(StopReason.ENV_DONE)
    await driver.close()


if __name__ == "__main__":
    asyncio.run(main())
