"""The timer: one phase at any moment, so the phases add up to the whole, whatever happens in them."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time

import pytest

from agentrl.metrics.step import STEP_PHASES, PhaseSeconds
from agentrl.metrics.timer import PhaseTimer, process_began

IMPORTED = time.monotonic()
NAMES = [field.name for field in dataclasses.fields(PhaseSeconds)]


class Time:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def passing() -> Time:
    return Time()


def wander(timer: PhaseTimer, passing: Time, rng: random.Random, depth: int = 0) -> None:
    """Phases in phases, some of which fail; time passes everywhere."""
    for _ in range(rng.randrange(1, 4)):
        passing.now += rng.randrange(8)
        try:
            with timer.phase(rng.choice(NAMES)):
                passing.now += rng.randrange(8)
                if depth < 4:
                    wander(timer, passing, rng, depth + 1)
                if rng.random() < 0.2:
                    raise ValueError
        except ValueError:
            pass
        if rng.random() < 0.2:
            timer.enter(rng.choice(NAMES))


@pytest.mark.parametrize("seed", range(20))
def test_the_phases_add_up_to_all_the_time_and_the_laps_too(passing: Time, seed: int) -> None:
    timer, rng = PhaseTimer(90.0, passing), random.Random(seed)
    laps = []
    for _ in range(5):
        wander(timer, passing, rng)
        laps.append(timer.lap())
    assert timer.spent().total == passing.now - 90.0
    assert sum(lap.total for lap in laps) == timer.spent().total
    assert timer.began == 90.0


def test_an_inner_phase_is_not_counted_twice_and_the_outer_one_goes_on(passing: Time) -> None:
    timer = PhaseTimer(now=passing)
    passing.now += 1
    with timer.phase("learn"):
        passing.now += 2
        with timer.phase("publish"):
            passing.now += 4
        passing.now += 8
        assert (timer.current, timer.seconds_in_phase()) == ("learn", 8.0)
    assert timer.spent() == PhaseSeconds(start=1.0, learn=10.0, publish=4.0)


def test_a_lap_is_what_was_spent_since_the_last_one(passing: Time) -> None:
    timer = PhaseTimer(now=passing)
    passing.now += 3
    timer.enter("other")
    timer.lap()
    with timer.phase("rollout"):
        passing.now += 5
    passing.now += 1
    lap = timer.lap()
    assert lap == PhaseSeconds(rollout=5.0, other=1.0)
    assert {name for name in NAMES if name not in STEP_PHASES} == {"start", "close"}


async def test_parts_run_side_by_side_and_leave_the_phases_alone(passing: Time) -> None:
    timer, gate = PhaseTimer(now=passing), asyncio.Event()

    async def started() -> int:
        await gate.wait()
        return 7

    both = asyncio.gather(timer.timed("engines", started()), timer.timed("learner", started()))
    await asyncio.sleep(0)
    passing.now += 30
    gate.set()
    assert await both == [7, 7]
    with timer.part("ray"):
        passing.now += 2
    assert timer.parts == {"engines": 30.0, "learner": 30.0, "ray": 2.0}
    assert timer.spent() == PhaseSeconds(start=32.0)


def test_a_process_began_before_its_first_line() -> None:
    began = process_began()
    assert began < IMPORTED
    assert process_began() == pytest.approx(began, abs=5.0), "it stays where it is while the process grows old"
