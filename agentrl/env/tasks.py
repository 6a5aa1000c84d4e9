"""Tasks, and how the framework reads them: an index always means the same task."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from threading import Lock
from typing import Any, Protocol, SupportsIndex, runtime_checkable

from agentrl.env.messages import short
from agentrl.errors import ConfigError, EnvError, UnknownNameError
from agentrl.types import HELD_OUT, TRAIN, is_unicode

MAX_YIELDED = 1_000_000
MAX_SKIPPED = 10_000_000
WINDOW = 1024


@dataclass(frozen=True, slots=True)
class Task:
    """One problem. An author sets `id` and `data`; the framework sets `split` and `index`."""

    id: str
    data: Any = None
    split: str = ""
    index: int = -1


@runtime_checkable
class TaskSource(Protocol):
    """Tasks by index; finite sources also have `__len__`."""

    def __getitem__(self, index: int, /) -> Task:
        """Return the task at `index`."""


Tasks = TaskSource | Callable[[random.Random], Task | Iterator[Task]] | Iterator[Task]
"""What `Env.tasks(split)` may return:

- a list or another object with `[index]`: finite if it has a length;
- a function of a `random.Random` that returns a task: endless, with a generator of its own for each task;
- a function of a `random.Random` that yields tasks: endless, replayed up to the requested index;
- an iterator (if `tasks` itself yields): finite, read at once.
"""


class Stream:
    """Tasks of a seeded generator by index, for several threads.

    The latest replay of the generator has those that are near, and a new one reads any other.
    """

    def __init__(self, start: Callable[[], Generator[Task]]) -> None:
        self._start = start
        self._replay = Replay(start())

    def __getitem__(self, index: int) -> Task:
        replay = self._replay if self._replay.is_near(index) else Replay(self._start())
        task = replay.read(index)
        self._replay = replay
        return task


class Replay:
    """A generator of tasks, and the latest ones that it yielded. One thread reads at a time."""

    def __init__(self, generator: Generator[Task]) -> None:
        self._generator = generator
        self._reading = Lock()
        self._next = 0
        self._recent: dict[int, Task] = {}

    def is_near(self, index: int) -> bool:
        """Return whether a task was yielded lately, or is soon: never by a generator that has raised."""
        ahead = WINDOW // 2 if inspect.getgeneratorstate(self._generator) != inspect.GEN_CLOSED else -1
        return self._next - WINDOW // 2 <= index <= self._next + ahead

    def read(self, index: int) -> Task:
        """Return a task. Raises IndexError for one that is too far ahead."""
        if index - self._next > MAX_SKIPPED:
            raise IndexError(f"task {index}: at most {MAX_SKIPPED:,} tasks of a generator can be skipped")
        with self._reading:
            while self._next <= index:
                try:
                    self._recent[self._next] = next(self._generator)
                except StopIteration as end:
                    raise EnvError(
                        f"the generator function that tasks() returned ended after {self._next} tasks: "
                        "let it yield without end, or return a list of the tasks"
                    ) from end
                self._recent.pop(self._next - 2 * WINDOW, None)
                self._next += 1
            return self._recent[index]


class Drawn:
    """Endless tasks, each drawn with its own generator, so that they are independent of each other."""

    def __init__(self, draw: Callable[[random.Random], Any], key: str) -> None:
        self._draw = draw
        self._key = key

    def __getitem__(self, index: int) -> Any:
        return self._draw(random.Random(f"{self._key}/{index}"))


class IndexedTasks:
    """The tasks of one split under one seed; `size` is None if they are endless."""

    def __init__(self, source: Tasks, split: str, seed: int) -> None:
        self.split = split
        self._source = indexed(source, f"{seed}/{split}")
        length = getattr(self._source, "__len__", None)
        self.size: int | None = int(length()) if length is not None else None
        self.is_replayed = isinstance(self._source, Stream)
        """Whether reading a task may take as long as reading all before it."""

    def __getitem__(self, index: int) -> Task:
        if index < 0 or (self.size is not None and index >= self.size):
            raise IndexError(f"task {index} of split {self.split!r}: there are {self.size} tasks")
        task = self._source[index]
        if not isinstance(task, Task):
            raise EnvError(f"task {index} of split {self.split!r} is a {type(task).__name__}; give agentrl.env.Task")
        if not isinstance(task.id, str):
            raise EnvError(f"task {index} of split {self.split!r} has the id {task.id!r}; give text")
        if not is_unicode(task.id):
            raise EnvError(
                f"task {index} of split {self.split!r} has the id {short(task.id)}, which UTF-8 cannot write: replace "
                "its lone surrogates"
            )
        return replace(task, split=self.split, index=index)


def indexed(source: Tasks, key: str) -> TaskSource:
    """Return what `tasks(split)` returned as a TaskSource; `key` seeds endless tasks."""
    if isinstance(source, Iterator):
        tasks = list(islice(source, MAX_YIELDED + 1))
        if len(tasks) > MAX_YIELDED:
            raise EnvError("tasks() yields endlessly; return a function of a random.Random instead")
        return tasks
    if isinstance(source, TaskSource) and not isinstance(source, str | Mapping):
        return source
    if inspect.isgeneratorfunction(source):
        return Stream(lambda: source(random.Random(key)))
    if callable(source):
        return Drawn(source, key)
    raise EnvError(
        f"tasks() returned a {type(source).__name__}; return a list, a function of a random.Random, or yield"
    )


def check_choice(split: str, index: int = 0) -> None:
    """Raise ConfigError unless `split` is one that agentrl uses and `index` is a whole number."""
    if split not in (TRAIN, HELD_OUT):
        raise UnknownNameError("split", split, (TRAIN, HELD_OUT))
    if not isinstance(index, SupportsIndex):
        raise ConfigError(f"index must be the position of a task, a whole number, got {short(index)}")
