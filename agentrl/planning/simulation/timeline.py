"""The timeline of a recorded engine: its steps, and the tokens that it sampled and read, between any two events."""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from agentrl.metrics.step import StepRecord
from agentrl.planning.simulation.cache import Context, PrefixCache, contexts
from agentrl.planning.simulation.recorded import TimedAttempt

Array = NDArray[np.float64]
ENDED, PUBLISHED, BEGAN = range(3)
"""Events, in the order of those at the same time."""


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """One turn on the timeline, in Unix seconds: its engine samples so many tokens after a context."""

    attempt: TimedAttempt
    engine: int
    began: float
    ended: float
    sampled: int
    context: Context

    def context_at(self, time: float) -> Context:
        """Return the context with the tokens sampled until then, at a constant rate."""
        share = (time - self.began) / max(1e-6, self.ended - self.began)
        return self.context.grown(round(self.sampled * min(1.0, max(0.0, share))))


def turns_of(attempt: TimedAttempt, engine: int, shares: Sequence[float]) -> Iterator[SampledTurn]:
    """Yield the turns of an attempt, among which its seconds in the engine are divided by `shares`."""
    episode = attempt.episode
    if episode is None or not episode.turns:
        return
    now = attempt.ended_at - episode.score_s - episode.env_s - episode.engine_s
    second = episode.engine_s / sum(shares)
    named = contexts(episode, (attempt.sample, attempt.attempt), attempt.sample.group)
    for turn, context, share in zip(episode.turns, named, shares, strict=True):
        now += episode.pause_s
        began, now = now, now + second * share
        yield SampledTurn(attempt, engine, began, now, turn.sampled, context)


def without_queue(turns: Sequence[SampledTurn], places: int) -> list[SampledTurn]:
    """Return the turns, in the order of their beginnings, each from when one of the engines' places was free for it."""
    ends: list[float] = []
    found = []
    for turn in sorted(turns, key=lambda turn: turn.began):
        free_at = heapq.heappop(ends) if len(ends) == places else turn.began
        heapq.heappush(ends, turn.ended)
        found.append(replace(turn, began=min(max(turn.began, free_at), turn.ended)))
    return found


def without_pauses(turns: Sequence[SampledTurn], steps: Sequence[StepRecord]) -> tuple[list[SampledTurn], list[float]]:
    """Return the turns on a clock that stops during publications, and the times of these on it."""
    pauses = [(step.at - step.seconds.publish, step.at) for step in steps if step.seconds.publish > 0]
    edges = [0.0, *itertools.chain.from_iterable(pauses)]
    paused = [0.0, *itertools.accumulate(s for begin, end in pauses for s in (0.0, end - begin))]

    def moved(time: float) -> float:
        return time - float(np.interp(time, edges, paused))

    found = [replace(turn, began=moved(turn.began), ended=moved(turn.ended)) for turn in turns]
    return [turn for turn in found if turn.began < turn.ended], [moved(end) for _, end in pauses]


class Timeline:
    """The turns of one engine and the publications, on a clock that stops during these.

    All requests in flight are sampled in step, so that until the next one ends, the engine takes the steps that it
    lacks. Whether it reads or samples at a given moment is not known, except that nothing remains to be read when a
    request ends.
    """

    def __init__(self, turns: Sequence[SampledTurn], published: Sequence[float], block: int) -> None:
        self.turns, self._cache = turns, PrefixCache(block)
        self._ends = np.array([turn.ended for turn in turns])
        self._missing = np.array([float(turn.sampled) for turn in turns])
        self._in_flight: list[int] = []
        self._now, self._done = 0.0, np.zeros(3)
        self._times, self._work, self._read_by = list[float](), list[Array](), list[float]()
        self.peak = 0
        began = ((turn.began, BEGAN, number) for number, turn in enumerate(turns))
        ended = ((turn.ended, ENDED, number) for number, turn in enumerate(turns))
        for at, kind, number in sorted([*began, *ended, *((at, PUBLISHED, 0) for at in published)]):
            self._advance(at)
            self._happen(kind, number)

    def work(self, turn: SampledTurn) -> tuple[float, Array]:
        """Return the seconds from the last moment before a turn at which nothing was being read, to its end.

        Also returns the engine's work in them: its steps, and the tokens that it sampled and read.
        """
        since = self._read_by[bisect.bisect_right(self._read_by, turn.began) - 1]
        return turn.ended - since, self._before(turn.ended) - self._before(since)

    def _before(self, time: float) -> Array:
        return self._work[bisect.bisect_left(self._times, time)]

    def _advance(self, at: float) -> None:
        """Sample until an event, whose time is `at`."""
        if self._in_flight and at > self._now:
            missing, ends = self._missing[self._in_flight], self._ends[self._in_flight]
            first = int(ends.argmin())
            steps = missing[first] * (at - self._now) / (ends[first] - self._now)
            sampled = np.minimum(steps, missing)
            self._missing[self._in_flight] -= sampled
            self._done = self._done + np.array([steps, sampled.sum(), 0.0])
        self._now = at
        self._times.append(at)
        self._work.append(self._done)

    def _happen(self, kind: int, number: int) -> None:
        if kind == ENDED:
            self._in_flight.remove(number)
        if kind == ENDED or (kind == BEGAN and not self._in_flight):
            self._read_by.append(self._now)
        if kind == PUBLISHED:
            self._cache.clear()
            self._read(self._in_flight)
        if kind == BEGAN:
            self._in_flight.append(number)
            self._read([number])
            self.peak = max(self.peak, len(self._in_flight))

    def _read(self, numbers: Sequence[int]) -> None:
        for turn in (self.turns[number] for number in numbers):
            self._done = self._done + np.array([0.0, 0.0, self._cache.read(turn.context_at(self._now))])
            self._cache.keep(turn.context, turn.sampled)
