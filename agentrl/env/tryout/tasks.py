"""The tasks of an environment read for a tryout: there are some, they stay the same, their ids tell them apart."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from agentrl.env.base import Env
from agentrl.env.tasks import IndexedTasks, Task
from agentrl.env.tracebacks import defined_at
from agentrl.errors import ConfigError, EnvError

MOST_COMPARED, MOST_REREAD, MOMENT_S = 10_000, 100, 1.0


@dataclass(frozen=True, slots=True)
class Ids:
    """The ids of the first tasks of a split, as many as could be read in a moment; `size` is None for endless tasks."""

    split: str
    size: int | None
    ids: tuple[str, ...]


async def first_task(env: Env, split: str, seed: int) -> Task:
    """The first task of a split; ConfigError where there is none."""
    try:
        return await _first_task(env, split, seed)
    except EnvError as error:
        if error.__cause__ is not None:
            raise
        raise EnvError(f"{type(env).__name__}{defined_at(env.tasks)}: {error}") from None


async def _first_task(env: Env, split: str, seed: int) -> Task:
    if await env.asize(split, seed) == 0:
        off = ", or --eval.tasks 0 for a run without an evaluation" if split == "test" else ""
        raise ConfigError(f"{type(env).__name__}: tasks({split!r}) is empty: give it a task{off}")
    return await env.atask(split, 0, seed)


async def read_ids(env: Env, split: str, seed: int) -> Ids:
    """The ids of a split."""
    until, size = time.monotonic() + MOMENT_S, await env.asize(split, seed)
    ids: list[str] = []
    while len(ids) < (MOST_COMPARED if size is None else min(MOST_COMPARED, size)) and time.monotonic() < until:
        ids.append((await env.atask(split, len(ids), seed)).id)
    return Ids(split, size, tuple(ids))


def overlap(read: list[Ids]) -> Iterator[str]:
    """Notes held-out tasks that are trained on."""
    if len(read) > 1 and (both := set(read[0].ids) & set(read[1].ids)):
        yield (
            f"{len(both)} of {len(read[1].ids)} held-out tasks are training tasks too, as {min(both)!r}: "
            "no score is held out."
        )


def doubles(read: Ids) -> Iterator[str]:
    """Notes tasks that share an id. Of endless tasks some may come again; all of them with one id are a slip too."""
    counts = Counter(read.ids)
    shared = {name: count for name, count in counts.items() if count > 1}
    if shared and (read.size is not None or len(counts) == 1):
        yield (
            f"{sum(shared.values())} of {len(read.ids)} tasks of {read.split!r} share an id with another, as "
            f"{max(shared, key=shared.__getitem__)!r}: give each its own, by which records and reports name it."
        )


async def check_reread(env: Env, read: Ids, seed: int) -> None:
    """ConfigError where a task is another one when the tasks are read again."""
    limit_s = env.limits.load_timeout_s
    source = await env.code.call(env.tasks, read.split, timeout_s=limit_s)
    again = await env.code.call(partial(IndexedTasks, source, read.split, seed), timeout_s=limit_s, name="tasks")
    for index, known in enumerate(read.ids[:MOST_REREAD]):
        if (task := again[index]).id != known:
            raise ConfigError(
                f"{type(env).__name__}: task {index} of {read.split!r} is {known!r}, and {task.id!r} when it is read "
                "again: tasks must not depend on chance; seed a random.Random of your own, or return a function of one"
            )
