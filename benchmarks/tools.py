"""Milliseconds that tools take: a calculation, a search, an MCP server's start, call and end, and a whole episode.

python -m benchmarks.tools [--documents 100000] [--rounds 5]; the last line is the figures as JSON. Each figure is the
least of the rounds, so that a busy machine spoils it as little as possible. An episode of `search` is the oracle's: two
searches in one turn, an answer, and the scoring; a thousand of them run at once.
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
from agentrl_tools import Document, Index, McpServer
from agentrl_tools.calculator import calculate

from agentrl.env import StopReason, close_shared
from benchmarks.timing import last_line

SERVER = Path(__file__).parents[1] / "tests/unit/tools/mcp_server.py"
EXPRESSION = "(1234.5 * 67 - 8/9)^2 / sqrt(16) + comb(20, 10)"
EPISODES = 1000


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000, help="size of the corpus that is searched")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    index, build_s = built(args.documents)
    words = [document.title for document in corpus(100)]
    figures = {
        "calculation_ms": await least(args.rounds, calculations) / 1000,
        "index_documents": args.documents,
        "index_build_ms": build_s * 1e3,
        "search_ms": await least(args.rounds, lambda: searches(index, words)) / len(words),
        "mcp_start_and_end_ms": await least(args.rounds, mcp_server),
        "mcp_call_ms": await mcp_call(args.rounds),
        "search_episode_ms": await least(args.rounds, episodes) / EPISODES,
    }
    await close_shared()
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
    task = await env.atask("train", number % 800)
    await env.areset(task, member=number)
    for turn in env.oracle(task):  # type: ignore[union-attr]
        await env.astep(turn)
    await env.afinish(StopReason.ENV_DONE)
    await env.aclose()


if __name__ == "__main__":
    asyncio.run(main())
