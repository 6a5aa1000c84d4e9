"""The timeline of a recorded engine knows its steps, and what it sampled and read while requests were in flight."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agentrl.planning.simulation.cache import Context
from agentrl.planning.simulation.timeline import SampledTurn, Timeline, without_pauses

BLOCK = 16
ATTEMPT: Any = None


def turn(began: float, ended: float, sampled: int, context: int = 0) -> SampledTurn:
    """A turn of a sequence of its own."""
    return SampledTurn(ATTEMPT, 0, began, ended, sampled, Context(context, object()))


def work(*turns: SampledTurn, published: tuple[float, ...] = ()) -> list[tuple[float, ...]]:
    """The seconds of each turn, and the steps, the sampled tokens and the read ones in them."""
    timeline = Timeline(turns, published, BLOCK)
    return [(seconds, *done.tolist()) for seconds, done in map(timeline.work, turns)]


def test_requests_that_begin_together_are_sampled_in_step() -> None:
    # Until 5 s prompts were read for a while, and both got 2 tokens; then the second one got 6 more.
    assert work(turn(0, 5, 2, 40), turn(0, 8, 8, 60)) == [(5, 2, 4, 100), (8, 8, 10, 100)]


def test_requests_that_begin_while_prompts_are_read_are_measured_from_the_first_one() -> None:
    # By 1 s the first one got 0.4 tokens; by 5 s both 1.6 more; the second one then lacks 6.4 of its 8.
    assert work(turn(0, 5, 2, 40), turn(1, 8, 8, 60))[1] == pytest.approx((8, 2 + 6.4, 2 + 8, 100))


def test_a_request_that_begins_later_is_measured_from_the_end_before_it() -> None:
    # From 4 s the first one lacks 4 of its 8 tokens, the third one of 5 s gets 10 / 3 of its 5 by 10 s.
    found = work(turn(0, 10, 8), turn(0, 4, 4), turn(5, 12, 5, 30))
    assert found[2] == pytest.approx((12 - 4, 4 + 5 - 10 / 3, 4 + 5, 30))


def test_an_idle_engine_does_no_work() -> None:
    assert work(turn(0, 4, 4), turn(100, 103, 2, 30))[1] == (3, 2, 2, 30)


def test_after_a_publication_the_contexts_in_flight_are_read_again() -> None:
    assert work(turn(0, 10, 10, 32), published=(5.0,)) == [(10, 10, 10, 32 + 32 + 5)]


def test_the_clock_stops_during_publications() -> None:
    steps: Any = [SimpleNamespace(at=at, seconds=SimpleNamespace(publish=2.0)) for at in (10.0, 20.0)]
    [one, other, *rest], published = without_pauses([turn(1, 12, 5), turn(9, 21, 5), turn(18.5, 19.5, 1)], steps)
    assert (one.began, one.ended) == pytest.approx((1, 10))
    assert (other.began, other.ended) == pytest.approx((8, 17))
    assert published == pytest.approx([8, 16])
    assert not rest, "this turn is in a publication"
