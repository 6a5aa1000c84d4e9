"""What tasks() returns is read by index, the same every time."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator

import pytest

from agentrl.env import EnvConfig, EnvDriver, Limits, Task, close_shared
from agentrl.env.tasks import WINDOW, IndexedTasks, Tasks
from agentrl.errors import DeadlineError, EnvError
from tests.unit.env.worlds import Echo


def numbers(rng: random.Random) -> Iterator[Task]:
    for n in range(3 * WINDOW):
        yield Task(str(n), rng.random())


def test_a_list_keeps_its_length_and_gets_split_and_index() -> None:
    tasks = IndexedTasks([Task("a"), Task("b")], "test", 0)
    assert tasks.size == 2
    assert tasks[1] == Task("b", None, "test", 1)
    for index in (-1, 2):
        with pytest.raises(IndexError):
            tasks[index]


def test_a_generator_is_replayed_to_any_index_in_any_order() -> None:
    order = [5, 3, 2 * WINDOW, 0, 2 * WINDOW + 1, 5]
    tasks = IndexedTasks(numbers, "train", 1)
    fresh = [IndexedTasks(numbers, "train", 1)[index] for index in order]
    assert [tasks[index] for index in order] == fresh
    assert tasks.size is None


def test_a_generator_that_ends_says_where() -> None:
    with pytest.raises(EnvError, match=f"ended after {3 * WINDOW} tasks: let it yield without end, or return a list"):
        IndexedTasks(numbers, "train", 1)[3 * WINDOW]


def test_a_task_far_ahead_of_a_generator_is_refused() -> None:
    with pytest.raises(IndexError, match="at most 10,000,000 tasks of a generator can be skipped"):
        IndexedTasks(numbers, "train", 1)[10**12]


def test_a_generator_that_raised_begins_anew() -> None:
    faults = [ConnectionError("once")]

    def flaky(rng: random.Random) -> Iterator[Task]:
        for n in range(5):
            if n == 3 and faults:
                raise faults.pop()
            yield Task(str(n))

    tasks = IndexedTasks(flaky, "train", 1)
    assert tasks[2].id == "2"
    with pytest.raises(ConnectionError):
        tasks[3]
    assert [tasks[n].id for n in (3, 0, 4)] == ["3", "0", "4"]


class Endless(Echo):
    limits = Limits(load_timeout_s=0.2)

    def tasks(self, split: str) -> Tasks:
        def held(_: random.Random) -> Iterator[Task]:
            yield Task("first")
            RELEASE.wait(60)
            yield Task("second")

        return held


RELEASE = threading.Event()


async def test_a_generator_is_replayed_beside_the_event_loop_until_a_deadline() -> None:
    driver = EnvDriver(Endless())
    assert (await driver.task("train", 0)).id == "first"
    reading = asyncio.ensure_future(driver.task("train", 1))
    try:
        await asyncio.sleep(0)
        assert not reading.done()
        with pytest.raises(DeadlineError, match=r"Endless\.tasks"):
            await reading
    finally:
        RELEASE.set()


class Shuffled(Echo):
    def __init__(self, config: EnvConfig | None = None) -> None:
        super().__init__(config)
        self.random = random.Random(0)

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}-{self.random.random()}")]


async def test_a_split_is_the_same_whatever_was_read_before() -> None:
    driver = EnvDriver(Shuffled())
    before = [await driver.task(split, 0, seed) for split, seed in (("train", 0), ("test", 7), ("train", 1))]
    await close_shared()
    assert [await driver.task("test", 0, 3), await driver.task("train", 0, 2)] == before[1:]
    assert before[0] == before[2]


def test_a_drawing_function_draws_each_task_on_its_own() -> None:
    tasks = IndexedTasks(lambda rng: Task("x", rng.random()), "train", 1)
    assert tasks[1_000_000] == IndexedTasks(lambda rng: Task("x", rng.random()), "train", 1)[1_000_000]
    assert tasks.size is None


def test_yielded_tasks_are_a_finite_list() -> None:
    assert IndexedTasks((Task(str(n)) for n in range(4)), "train", 0).size == 4


@pytest.mark.parametrize("source", [3, None])
def test_other_sources_are_rejected(source: object) -> None:
    with pytest.raises(EnvError, match="return a list"):
        IndexedTasks(source, "train", 0)  # type: ignore[arg-type]


def test_an_item_that_is_not_a_task_is_rejected() -> None:
    with pytest.raises(EnvError, match="is a dict"):
        IndexedTasks([{"question": "?"}], "train", 0)[0]  # type: ignore[list-item]


def test_an_id_that_no_file_can_hold_is_rejected() -> None:
    assert IndexedTasks([Task("\U0001f600")], "train", 0)[0].id == "\U0001f600"
    with pytest.raises(EnvError, match=r"task 0 of split 'train' has the id 'a\\ud800', which UTF-8 cannot write"):
        IndexedTasks([Task("a\ud800")], "train", 0)[0]
