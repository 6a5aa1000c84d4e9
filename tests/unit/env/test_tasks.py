"""What tasks() returns is read by index, the same every time."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from agentrl.env import Task
from agentrl.env.tasks import WINDOW, IndexedTasks
from agentrl.errors import EnvError


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
