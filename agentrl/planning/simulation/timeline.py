"""The timeline of a recorded run: how many tokens its engines sampled and read in any interval."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from agentrl.metrics.step import StepRecord
from agentrl.planning.simulation.engine import unread
from agentrl.planning.simulation.recorded import TimedAttempt

Array = NDArray[np.float64]
BURST_S = 0.1
"""Requests that come within this time are read together."""


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """One turn on the timeline, in Unix seconds, with the tokens that the engine read and sampled."""

    attempt: TimedAttempt
    began: float
    ended: float
    read: int
    sampled: int
    context: int


def turns_of(attempt: TimedAttempt, *, is_shared: bool) -> Iterator[SampledTurn]:
    """Yield the turns of an attempt, whose seconds in the engine are divided by tokens.

    `is_shared`: another member of its group has had the prompt read before.
    """
    episode = attempt.episode
    if episode is None or not episode.sampled:
        return
    now, context = attempt.ended_at - episode.score_s - episode.env_s - episode.engine_s, 0
    for number, turn in enumerate(episode.turns):
        now += episode.pause_s
        began, now = now, now + episode.engine_s * turn.sampled / episode.sampled
        context = turn.context + (0 if turn.is_first else context)
        read = unread(turn.context, is_shared=is_shared and number == 0)
        yield SampledTurn(attempt, began, now, read, turn.sampled, context)
        context += turn.sampled


def without_queue(turns: Sequence[SampledTurn], places: int) -> list[SampledTurn]:
    """Return the turns, in the order of their beginnings, each from when one of the engines' places was free for it."""
    ends: list[float] = []
    found = []
    for turn in sorted(turns, key=lambda turn: turn.began):
        free_at = heapq.heappop(ends) if len(ends) == places else turn.began
        heapq.heappush(ends, turn.ended)
        found.append(replace(turn, began=min(max(turn.began, free_at), turn.ended)))
    return found


class Timeline:
    """All turns of a run and its publications. A turn samples its tokens at a constant rate.

    A publication empties the caches, so that the contexts of all turns in flight are read again.
    """

    def __init__(self, turns: Sequence[SampledTurn], steps: Sequence[StepRecord]) -> None:
        began, ended = (np.array([getattr(turn, name) for turn in turns]) for name in ("began", "ended"))
        self._times = np.unique(np.concatenate([began, ended]))
        rates = np.array([turn.sampled for turn in turns]) / np.maximum(1e-6, ended - began)
        self._sampled = self._integral(began, ended, rates)
        self._requests = np.cumsum(self._changes(began, ended, np.ones(len(turns))))
        published = np.array([step.at for step in steps if step.seconds.publish > 0])
        self._pauses = [(step.at - step.seconds.publish, step.at) for step in steps if step.seconds.publish > 0]
        lengths = np.array([turn.context + turn.sampled / 2 for turn in turns])
        again = [float(lengths[(began < at) & (at < ended)].sum()) for at in published]
        self._reads = _Sums(np.concatenate([began, published]), np.array([*(t.read for t in turns), *again]))

    def sampled(self, turn: SampledTurn) -> float:
        """Return the tokens that all engines sampled during a turn."""
        began, ended = np.interp([turn.began, turn.ended], self._times, self._sampled)
        return float(ended - began)

    def read(self, turn: SampledTurn) -> float:
        """Return the tokens that all engines read during a turn, or just before it."""
        return self._reads.between(turn.began - BURST_S, turn.ended)

    def paused_s(self, turn: SampledTurn) -> float:
        """Return the seconds of publications during a turn."""
        return sum(max(0.0, min(turn.ended, end) - max(turn.began, begin)) for begin, end in self._pauses)

    @property
    def peak(self) -> int:
        """The largest number of requests in flight at once."""
        return int(self._requests.max())

    def _changes(self, began: Array, ended: Array, rates: Array) -> Array:
        changes = np.zeros(len(self._times))
        np.add.at(changes, np.searchsorted(self._times, began), rates)
        np.add.at(changes, np.searchsorted(self._times, ended), -rates)
        return changes

    def _integral(self, began: Array, ended: Array, rates: Array) -> Array:
        slopes = np.cumsum(self._changes(began, ended, rates))
        return np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(self._times))])


class _Sums:
    """Sums of what happens at points in time."""

    def __init__(self, times: Array, amounts: Array) -> None:
        order = np.argsort(times)
        self._times, self._before = times[order], np.concatenate([[0.0], np.cumsum(amounts[order])])

    def between(self, begin: float, end: float) -> float:
        first, last = np.searchsorted(self._times, [begin, end])
        return float(self._before[last] - self._before[first])
