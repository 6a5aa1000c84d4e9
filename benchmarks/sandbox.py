"""Latency, throughput and memory of sandboxes, and grading HumanEval against a fresh `python -I` for each program.

python -m benchmarks.sandbox [--humaneval FILE] [--episodes 1000]; the last line is the figures as JSON.
Latencies are of one caller, then of 64; grading takes turns with its rivals, and the pool's refills count.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import resource
import sys
import time
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agentrl_sandbox import Backend, Limits, Pool, Python, UnavailableError, choose
from agentrl_sandbox.boot import interpreter
from agentrl_sandbox.types import MIB

from benchmarks.timing import alternated, column, last_line, memory_bytes

TRIVIAL = Python("print(1)")
CALLERS = 64
PATIENCE_S = 600.0
SMALL = Limits(memory_bytes=256 * MIB)


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Least, middle and hundredth-worst, in milliseconds."""
    ordered = sorted(seconds)
    places = {"min": 0, "p50": len(ordered) // 2, "p99": min(len(ordered) - 1, len(ordered) * 99 // 100)}
    return {f"{name}_ms": 1e3 * ordered[place] for name, place in places.items()}


async def from_pool(backend: Backend, times: int) -> dict[str, float]:
    """A trivial program in a pre-started sandbox: from asking for the lease to the result."""
    taken = []
    async with Pool(backend, SMALL) as pool:
        for _ in range(times):
            while pool.count.ready < 2 or pool.count.closing:  # noqa: ASYNC110 (a pool offers no more than its count)
                await asyncio.sleep(0.002)
            started = time.perf_counter()
            async with pool.lease() as sandbox:
                assert (await sandbox.exec(TRIVIAL)).is_ok
                taken.append(time.perf_counter() - started)
    return quantiles(taken)


async def from_cold(backend: Backend, times: int) -> dict[str, float]:
    """The same in a sandbox that is made for it."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        sandbox = await backend.create(SMALL)
        assert (await sandbox.exec(TRIVIAL)).is_ok
        taken.append(time.perf_counter() - started)
        await sandbox.close()
    return quantiles(taken)


async def crowded(backend: Backend, each: int) -> dict[str, float]:
    """64 callers without a pause: executions per second, and the time that a lease was waited for."""
    waited = []

    async def call(pool: Pool) -> None:
        for _ in range(each):
            asked = time.perf_counter()
            async with pool.lease(PATIENCE_S) as sandbox:
                waited.append(time.perf_counter() - asked)
                assert (await sandbox.exec(TRIVIAL)).is_ok

    async with Pool(backend, SMALL) as pool:
        started = time.perf_counter()
        await asyncio.gather(*(call(pool) for _ in range(CALLERS)))
        seconds = time.perf_counter() - started
    queue = {f"queue_{name}": value for name, value in quantiles(waited).items()}
    return {"executions_per_s": CALLERS * each / seconds, **queue}


async def held(backend: Backend, episodes: int) -> dict[str, float]:
    """So many sandboxes held at once, each with a session that has state: memory, and how long the last one waited."""
    before = sum(memory_bytes().values())
    waited: list[float] = []
    asked = time.perf_counter()
    async with Pool(backend, SMALL, most=episodes) as pool:

        async def hold() -> None:
            sandbox = await pool.take(PATIENCE_S)
            waited.append(time.perf_counter() - asked)
            assert (await sandbox.run("x = 1")).is_ok

        await asyncio.gather(*(hold() for _ in range(episodes)))
        used = sum(memory_bytes().values()) - before
    queue = {f"queue_{name}": value for name, value in quantiles(waited).items()}
    return {"episodes": float(episodes), "mib_per_episode": used / episodes / MIB, **queue}


# --- grading ----------------------------------------------------------------------------------------------------


def programs(path: Path) -> list[str]:
    """HumanEval's reference solutions, each with its test."""
    with gzip.open(path, "rt") as file:
        rows = [json.loads(line) for line in file]
    return [f"{r['prompt']}{r['canonical_solution']}\n{r['test']}\ncheck({r['entry_point']})\n" for r in rows]


async def at_once(work: list[Callable[[], Awaitable[bool]]], width: int) -> None:
    """Do it all, `width` at a time; every program must pass."""
    left = iter(work)

    async def worker() -> None:
        for do in left:
            assert await do()

    await asyncio.gather(*(worker() for _ in range(width)))


async def in_sandboxes(backend: Backend, sources: list[str], width: int) -> dict[str, float]:
    """Each program in a sandbox of its own, the making and removing of them all counted."""
    before = cpu_s()
    async with Pool(backend, SMALL) as pool:

        async def grade(source: str) -> bool:
            async with pool.lease(PATIENCE_S) as sandbox:
                return (await sandbox.exec(Python(source))).is_ok

        await at_once([lambda s=source: grade(s) for source in sources], width)  # type: ignore[misc]
    return {"cpu_s": cpu_s() - before}


async def in_interpreters(sources: list[str], width: int, *flags: str) -> dict[str, float]:
    """Each program in a fresh interpreter, with no wall around it."""
    before = cpu_s()
    with TemporaryDirectory() as folder:

        async def grade(number: int, source: str) -> bool:
            path = Path(folder, f"{number}.py")
            path.write_text(source)  # noqa: ASYNC240 (a rival that has a file written for it)
            child = await asyncio.create_subprocess_exec(
                interpreter(), *flags, str(path), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            await child.communicate()
            return child.returncode == 0

        await at_once([lambda n=n, s=s: grade(n, s) for n, s in enumerate(sources)], width)  # type: ignore[misc]
    return {"cpu_s": cpu_s() - before}


def cpu_s() -> float:
    """CPU time of this process and of all that it has waited for."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


async def grading(backend: Backend, path: Path, rounds: int, width: int) -> dict[str, Any]:
    """Seconds for all of HumanEval, in sandboxes and without, taking turns."""
    sources = programs(path)
    taken = await alternated(
        rounds,
        {
            "sandboxes": lambda: in_sandboxes(backend, sources, width),
            "python -I": lambda: in_interpreters(sources, width, "-I"),
            "python -I -S": lambda: in_interpreters(sources, width, "-I", "-S"),
        },
    )
    figures: dict[str, Any] = {"programs": len(sources), "width": width}
    for key in ("seconds", "cpu_s"):
        figures[key] = {name: column(rows, key) for name, rows in taken.items()}
        figures[f"least_{key}"] = {name: min(row[key] for row in rows) for name, rows in taken.items()}
        figures[f"ratio_{key}"] = figures[key]["sandboxes"] / figures[key]["python -I"]
        figures[f"least_ratio_{key}"] = figures[f"least_{key}"]["sandboxes"] / figures[f"least_{key}"]["python -I"]
    return figures


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name in arguments.backends:
        try:
            backend = choose(name)
        except UnavailableError as error:
            print(error, file=sys.stderr)
            continue
        quick = 1 if name != "docker" else 10
        measured: dict[str, Any] = {"describe": backend.describe()}
        steps: dict[str, Callable[[], Awaitable[dict[str, Any]]]] = {
            "pool": lambda b=backend, q=quick: from_pool(b, arguments.times // q),  # type: ignore[misc]
            "cold": lambda b=backend, q=quick: from_cold(b, arguments.times // 4 // q + 1),  # type: ignore[misc]
            "callers_64": lambda b=backend, q=quick: crowded(b, 10 // q),  # type: ignore[misc]
        }
        if name == "bubblewrap":
            steps["held"] = lambda b=backend: held(b, arguments.episodes)  # type: ignore[misc]
            if arguments.humaneval:
                width = len(os.sched_getaffinity(0))
                steps["humaneval"] = lambda b=backend, w=width: grading(b, arguments.humaneval, arguments.rounds, w)  # type: ignore[misc]
        for step, take in steps.items():
            measured[step] = await take()
            print(name, step, measured[step], flush=True)
        figures[name] = measured
        await backend.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", nargs="+", default=["bubblewrap", "docker", "process"])
    parser.add_argument("--humaneval", type=Path, help="HumanEval's humaneval.jsonl.gz")
    parser.add_argument("--times", type=int, default=200, help="programs for a latency")
    parser.add_argument("--episodes", type=int, default=1000, help="sandboxes held at once")
    parser.add_argument("--rounds", type=int, default=5, help="of grading")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(last_line("sandbox", asyncio.run(measure(arguments))))


if __name__ == "__main__":
    main()
