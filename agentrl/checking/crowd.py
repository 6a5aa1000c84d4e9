"""Many episodes at once: whether all of them end well, how long they take, and who blocks the event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from inspect import getfile
from pathlib import Path
from statistics import quantiles

from agentrl.checking.attempts import AT_A_TASK, IN_TURN_S, TICK_S, affordable, calling, faults_of, offered, sampled
from agentrl.checking.calls import valid_arguments
from agentrl.checking.check import FailedError, Subject
from agentrl.env.base import Env
from agentrl.env.policies import player_of
from agentrl.env.tasks import Task
from agentrl.env.testing.cancellation import described_error
from agentrl.env.testing.checks import own_evidence
from agentrl.env.testing.episodes import moments, play_signals, sample_tasks, signals_of
from agentrl.errors import acatch, catch
from agentrl.plugins.tracebacks import FRAMEWORK, home_of, is_foreign
from agentrl.types import Signal

SIZES = (1, 8, 64, 1000)
BUDGET_S = 60.0
"""Time that a crowd may take; a larger one that would take longer is left out."""
BLOCKED_S, WATCH_S = 0.05, 0.005
WATCHED_TASKS = 2


async def crowd(subject: Subject) -> str:
    """Play 1, 64 and 1,000 episodes at once; returns a table of their latencies."""
    tasks = await sample_tasks(subject.make(), 8)
    rows, took_s, before = [], 0.0, 1
    for size in SIZES:
        if took_s * size / before > BUDGET_S:
            rows.append(f"{size:>6,} episodes at once: left out, they would take about {took_s * size / before:.0f} s")
            continue
        began = time.monotonic()
        latencies = await _play(subject, tasks, size)
        took_s, before = max(TICK_S, time.monotonic() - began), size
        middle, late = _quantiles(latencies)
        rows.append(
            f"{size:>6,} episodes at once: median {middle:.0f} ms, p99 {late:.0f} ms, {size / took_s:.0f} per s"
        )
    return "\n".join(rows)


async def _play(subject: Subject, tasks: list[Task], size: int) -> list[float]:
    """Return the latency of each episode in ms. Raises FailedError if one fails or its reward is invalid."""

    async def one(member: int) -> tuple[float, str]:
        task, began = tasks[member % len(tasks)], time.monotonic()
        played = await acatch(_episode(subject.make(), task, member))
        fault = described_error(played.error) if played.error else next(iter(faults_of(played.value.values())), "")
        where = f"an episode of task {task.id!r} among {size:,} episodes at once fails: "
        return 1000 * (time.monotonic() - began), fault and f"{where}{fault}"

    played = await asyncio.gather(*map(one, range(size)))
    if faults := [fault for _, fault in played if fault]:
        raise FailedError(faults[0])
    return [latency for latency, _ in played]


async def _episode(env: Env, task: Task, member: int) -> dict[str, Signal]:
    """Play an episode; others run between any two of its moments, as they do while a model answers."""
    passed = []
    async with aclosing(moments(env, task, player_of(env, task), member=member)) as playing:
        async for moment in playing:
            passed.append(moment)
            await asyncio.sleep(0)
    return signals_of(passed)


def _quantiles(latencies: list[float]) -> tuple[float, float]:
    """(median, 99th percentile)."""
    if len(latencies) < 2:
        return latencies[0], latencies[0]
    cuts = quantiles(latencies, n=100, method="inclusive")
    return cuts[49], cuts[98]


async def unblocked(subject: Subject) -> str:
    """Check that no method of the environment holds the event loop, in two rounds: what is done once may take long."""
    blocked, home = set[str](), home_of(Path(getfile(subject.env_class)))
    tasks = await affordable(subject, WATCHED_TASKS, AT_A_TASK)
    for _ in range(2):
        with _watched(home) as lines:
            await _round(subject, tasks)
        blocked = lines
    if blocked:
        raise FailedError(
            f"the event loop is blocked for more than {1000 * BLOCKED_S:g} ms{'; '.join(sorted(blocked))}"
        )
    return sampled(tasks, WATCHED_TASKS)


async def _round(subject: Subject, tasks: int) -> None:
    """Play oracle, canaries and silence, one episode after another, and a turn that calls every tool."""
    found = await sample_tasks(subject.make(), tasks)
    for task in found:
        # No run asks for the oracle and the canaries, so they may compute.
        for policy in await asyncio.to_thread(own_evidence, subject.make(), task):
            await play_signals(subject.make(), task, policy)
    calls = [(tool["name"], valid_arguments(tool["parameters"])) for tool in await offered(subject, found[0])]
    turn = play_signals(subject.make(), found[0], [calling(*calls)])
    await acatch(asyncio.wait_for(turn, IN_TURN_S))  # `odd-calls` reports errors


@contextmanager
def _watched(home: Path) -> Iterator[set[str]]:
    """Collect the lines that hold this thread's event loop for more than BLOCKED_S, as another thread sees them.

    Time in which other processes keep the thread from a core is not counted.
    """
    lines, loop_thread, loop = set[str](), threading.current_thread(), asyncio.get_running_loop()
    ended, beat = threading.Event(), threading.Event()

    def watch() -> None:
        while not ended.is_set():
            beat.clear()
            began = time.monotonic() - _waited_for_core_s(loop_thread)
            loop.call_soon_threadsafe(beat.set)
            left_s = BLOCKED_S
            while left_s > 0 and not beat.wait(left_s):
                left_s = BLOCKED_S - (time.monotonic() - _waited_for_core_s(loop_thread) - began)
            if not beat.is_set() and (line := _blamed_line(loop_thread, home)):
                lines.add(line)
            beat.wait()
            ended.wait(WATCH_S)

    watcher = threading.Thread(target=watch, name="agentrl-watch", daemon=True)
    watcher.start()
    try:
        yield lines
    finally:
        ended.set()


def _waited_for_core_s(thread: threading.Thread) -> float:
    """Return how long a thread has been ready to run while others had the cores; 0 where the system does not tell."""
    read = catch(Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text)
    return 0.0 if read.error else int(read.value.split()[1]) / 1e9


def _blamed_line(thread: threading.Thread, home: Path) -> str:
    """Return the innermost line of the author that a thread runs; "" if agentrl itself called what runs."""
    running = sys._current_frames().get(thread.ident or 0)
    for frame in reversed(traceback.extract_stack(running) if running else []):
        path = Path(frame.filename)
        if path.is_relative_to(FRAMEWORK):
            return ""
        if path.is_relative_to(home) or (is_foreign(frame.filename) and "site-packages" not in path.parts):
            return f" by {frame.name} ({path.name}:{frame.lineno})"
    return ""
