"""The clock: one phase at any moment, so the phases add up to the whole, whatever happens in them."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time

import pytest

from agentrl.metrics.step import STEP_PHASES, Seconds
from agentrl.metrics.timer import Clock, process_began

IMPORTED = time.monotonic()
NAMES = [field.name for field in dataclasses.fields(Seconds)]


class Time:
    """A time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def passing() -> Time:
    return Time()


def wander(clock: Clock, passing: Time, rng: random.Random, depth: int = 0) -> None:
    """Phases in phases, some of which fail; time passes everywhere."""
    for _ in range(rng.randrange(1, 4)):
        passing.now += rng.randrange(8)
        try:
            with clock.phase(rng.choice(NAMES)):
                passing.now += rng.randrange(8)
                if depth < 4:
                    wander(clock, passing, rng, depth + 1)
                if rng.random() < 0.2:
                    raise ValueError
        except ValueError:
            pass
        if rng.random() < 0.2:
            clock.enter(rng.choice(NAMES))


@pytest.mark.parametrize("seed", range(20))
def test_the_phases_add_up_to_all_the_time_and_the_laps_too(passing: Time, seed: int) -> None:
    clock, rng = Clock(90.0, passing), random.Random(seed)
    laps = []
    for _ in range(5):
        wander(clock, passing, rng)
        laps.append(clock.lap())
    assert clock.spent().total == passing.now - 90.0
    assert sum(lap.total for lap in laps) == clock.spent().total
    assert clock.began == 90.0


def test_an_inner_phase_is_not_counted_twice_and_the_outer_one_goes_on(passing: Time) -> None:
    clock = Clock(now=passing)
    passing.now += 1
    with clock.phase("learn"):
        passing.now += 2
        with clock.phase("publish"):
            passing.now += 4
        passing.now += 8
        assert (clock.current, clock.seconds_in_phase()) == ("learn", 8.0)
    assert clock.spent() == Seconds(start=1.0, learn=10.0, publish=4.0)


def test_a_lap_is_what_was_spent_since_the_last_one(passing: Time) -> None:
    clock = Clock(now=passing)
    passing.now += 3
    clock.enter("other")
    clock.lap()
    with clock.phase("rollout"):
        passing.now += 5
    passing.now += 1
    lap = clock.lap()
    assert lap == Seconds(rollout=5.0, other=1.0)
    assert {name for name in NAMES if name not in STEP_PHASES} == {"start", "close"}


async def test_parts_run_side_by_side_and_leave_the_phases_alone(passing: Time) -> None:
    clock, gate = Clock(now=passing), asyncio.Event()

    async def started() -> int:
        await gate.wait()
        return 7

    both = asyncio.gather(clock.timed("engines", started()), clock.timed("learner", started()))
    await asyncio.sleep(0)
    passing.now += 30
    gate.set()
    assert await both == [7, 7]
    with clock.part("ray"):
        passing.now += 2
    assert clock.parts == {"engines": 30.0, "learner": 30.0, "ray": 2.0}
    assert clock.spent() == Seconds(start=32.0)


def test_a_process_began_before_its_first_line() -> None:
    began = process_began()
    assert began < IMPORTED
    assert process_began() == pytest.approx(began, abs=5.0), "it stays where it is while the process grows old"
