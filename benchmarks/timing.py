"""What the benchmarks share: rounds that take turns, medians, CPU and memory of processes, and the last line."""

from __future__ import annotations

import json
import os
import statistics
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import psutil

from agentrl.config.machine import detect
from agentrl.records.manifest import cpu_name


def machine() -> dict[str, Any]:
    """The machine that the figures hold for, and how busy it was when they were taken."""
    here = detect()
    return {
        "cpu": cpu_name() or "unknown",
        "cores": here.cores,
        "memory_gib": round(here.memory_gib, 1),
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def last_line(benchmark: str, figures: Mapping[str, Any]) -> str:
    """One line of JSON: the benchmark's name, the machine, then the figures; floats have four significant digits."""
    return json.dumps({"benchmark": benchmark, "machine": machine(), **_rounded(dict(figures))})


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value


def median(values: Sequence[float]) -> float:
    """The median of a list that is not empty."""
    return statistics.median(values)


async def alternated(
    rounds: int, arms: Mapping[str, Callable[[], Awaitable[dict[str, float]]]]
) -> dict[str, list[dict[str, float]]]:
    """Run every arm once a round, `rounds` times after one round of warm-up; what each returned, with its seconds."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in arms}
    for number in range(rounds + 1):
        for name, arm in arms.items():
            started = time.perf_counter()
            figures = await arm()
            row = {"seconds": time.perf_counter() - started, **figures}
            words = "  ".join(f"{key} {value:.5g}" for key, value in row.items())
            print(f"{'warm-up' if number == 0 else f'round {number}':8} {name:12} {words}", flush=True)
            if number:
                taken[name].append(row)
    return taken


def column(rows: Sequence[Mapping[str, float]], key: str) -> float:
    """The median of one figure over rounds."""
    return median([row[key] for row in rows])


def family() -> dict[int, psutil.Process]:
    """This process and every process under it, by pid."""
    me = psutil.Process()
    return {process.pid: process for process in (me, *me.children(recursive=True))}


def cpu_seconds() -> dict[int, float]:
    """User and system time of every process of `family` so far."""
    spent = {}
    for pid, process in family().items():
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        spent[pid] = times.user + times.system
    return spent


def memory_bytes() -> dict[int, int]:
    """Proportional set size of every process of `family`: shared pages count once."""
    held = {}
    for pid, process in family().items():
        try:
            held[pid] = process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return held


class Peak:
    """The peak of the memory of all processes together while the context is open."""

    def __init__(self) -> None:
        self.before = sum(memory_bytes().values())
        self.most = self.before
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            self.most = max(self.most, sum(memory_bytes().values()))
