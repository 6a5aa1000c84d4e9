"""Checks of tasks in a dry run: a split has some, they are the same when read again, and their ids differ."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from agentrl.env.base import Env
from agentrl.env.comparison import difference, is_comparable
from agentrl.env.driver.driver import EnvDriver
from agentrl.env.driver.resources import resources_of
from agentrl.env.messages import few, short
from agentrl.env.tasks import Task
from agentrl.errors import ConfigError, EnvError
from agentrl.plugins.tracebacks import defined_at

MAX_COMPARED, MAX_REREAD, MOMENT_S = 10_000, 100, 1.0


@dataclass(frozen=True, slots=True)
class ReadTasks:
    """The first tasks of a split, as many as can be read in a second; `size` is None for endless tasks."""

    split: str
    size: int | None
    tasks: tuple[Task, ...]

    @property
    def ids(self) -> list[str]:
        """Their ids."""
        return [task.id for task in self.tasks]


async def first_task(driver: EnvDriver, split: str, seed: int) -> Task:
    """Return the first task of a split; ConfigError if there is none."""
    env = driver.env
    try:
        if await driver.size(split, seed) == 0:
            off = ", or --eval.tasks 0 for a run without an evaluation" if split == "test" else ""
            raise ConfigError(f"{type(env).__name__}: tasks({split!r}) is empty: give it a task{off}")
        return await driver.task(split, 0, seed)
    except EnvError as error:
        if error.__cause__ is not None:
            raise
        raise EnvError(f"{type(env).__name__}{defined_at(env.tasks)}: {error}") from None


async def read_tasks(driver: EnvDriver, split: str, seed: int) -> ReadTasks:
    """Return the first tasks of a split."""
    until, size = time.monotonic() + MOMENT_S, await driver.size(split, seed)
    tasks: list[Task] = []
    while len(tasks) < (MAX_COMPARED if size is None else min(MAX_COMPARED, size)) and time.monotonic() < until:
        tasks.append(await driver.task(split, len(tasks), seed))
    return ReadTasks(split, size, tuple(tasks))


def overlap(read: list[ReadTasks]) -> Iterator[str]:
    """Yield a note on held-out tasks that are also training tasks."""
    if len(read) > 1 and (both := set(read[0].ids) & set(read[1].ids)):
        yield (
            f"{len(both)} of {len(read[1].tasks)} held-out tasks are training tasks too, so their scores are not held "
            f"out: {few([short(name) for name in sorted(both)])}"
        )


def duplicate_ids(read: ReadTasks) -> Iterator[str]:
    """Yield a note on tasks that share an id. Endless tasks may repeat, but not all of them may have the same id."""
    counts = Counter(read.ids)
    shared = {name: count for name, count in counts.items() if count > 1}
    if shared and (read.size is not None or len(counts) == 1):
        yield (
            f"{sum(shared.values())} of {len(read.tasks)} tasks of {read.split!r} share an id with another, for "
            f"example {short(max(shared, key=shared.__getitem__))}: give each its own, because records and "
            "reports name tasks by it."
        )


async def check_reread(env: Env, read: ReadTasks, seed: int) -> list[str]:
    """Return a note if the data of a task changes when the tasks are read again; ConfigError if the task does.

    Data that differs from its own copy is not compared.
    """
    again = await resources_of(env).load(read.split, seed)
    for index, known in enumerate(read.tasks[:MAX_REREAD]):
        what, task = f"task {index} of {read.split!r}", again[index]
        if task.id != known.id:
            raise ConfigError(
                f"{type(env).__name__}: {what} is {known.id!r}, and {task.id!r} when it is read again: "
                "tasks must be deterministic; seed your own random.Random, or return a function of one"
            )
        if is_comparable(known.data) and (found := difference(known.data, task.data, "data")):
            return [f"When it is read again, {what} has other data ({found}): seed your own random.Random."]
    return []
