"""Simulated time passes at once, in order, and never for nothing."""

from __future__ import annotations

import asyncio
import time

import pytest

from agentrl.planning.simulation.clock import run


def test_hours_pass_at_once() -> None:
    async def wait() -> float:
        await asyncio.sleep(100 * 3600)
        return asyncio.get_running_loop().time()

    began = time.monotonic()
    assert run(wait()) == pytest.approx(360_000)
    assert time.monotonic() - began < 5


def test_deadlines_are_simulated_too() -> None:
    async def wait() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7):
                await asyncio.sleep(8)
        return asyncio.get_running_loop().time()

    assert run(wait()) == pytest.approx(7)


def test_events_come_in_the_order_of_their_times_and_then_of_their_making() -> None:
    seen: list[str] = []

    async def note(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append(name)

    async def all_of_them() -> None:
        await asyncio.gather(note("late", 2), note("first", 1), note("second", 1), note("at once", 0))

    run(all_of_them())
    assert seen == ["at once", "first", "second", "late"]


def test_a_simulation_in_which_nothing_can_happen_ends() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match="nothing is scheduled"):
        run(wait())
