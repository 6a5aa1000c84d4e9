"""The timeline of a recorded run: how many tokens its engines sampled and read in any interval."""

from __future__ import annotations

import collections
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from agentrl.metrics.step import StepRecord
from agentrl.planning.simulation.cache import Context, PrefixCache, contexts
from agentrl.planning.simulation.recorded import TimedAttempt

Array = NDArray[np.float64]
BURST_S = 0.1
"""Requests that come within this time are read together."""


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


def turns_of(attempt: TimedAttempt, engine: int) -> Iterator[SampledTurn]:
    """Yield the turns of an attempt, whose seconds in the engine are divided by tokens."""
    episode = attempt.episode
    if episode is None or not episode.sampled:
        return
    now = attempt.ended_at - episode.score_s - episode.env_s - episode.engine_s
    named = contexts(episode, (attempt.sample, attempt.attempt), attempt.sample.group)
    for turn, context in zip(episode.turns, named, strict=True):
        now += episode.pause_s
        began, now = now, now + episode.engine_s * turn.sampled / episode.sampled
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


class Timeline:
    """All turns of a run and its publications. A turn samples its tokens at a constant rate."""

    def __init__(self, turns: Sequence[SampledTurn], steps: Sequence[StepRecord], *, prefix_caching: bool) -> None:
        began, ended = (np.array([getattr(turn, name) for turn in turns]) for name in ("began", "ended"))
        self._times = np.unique(np.concatenate([began, ended]))
        rates = np.array([turn.sampled for turn in turns]) / np.maximum(1e-6, ended - began)
        self._sampled = self._integral(began, ended, rates)
        self._requests = np.cumsum(self._changes(began, ended, np.ones(len(turns))))
        self._pauses = [(step.at - step.seconds.publish, step.at) for step in steps if step.seconds.publish > 0]
        reads = list(_reads(turns, [end for _, end in self._pauses], prefix_caching=prefix_caching))
        self._reads = _Sums(np.array([at for at, _ in reads]), np.array([float(tokens) for _, tokens in reads]))

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


def _reads(
    turns: Sequence[SampledTurn], published: Sequence[float], *, prefix_caching: bool
) -> Iterator[tuple[float, int]]:
    """Yield when engines read tokens, and how many; after a publication they read the contexts in flight again."""
    caches: dict[int, PrefixCache] = collections.defaultdict(lambda: PrefixCache(is_enabled=prefix_caching))
    events = [*((turn.began, number) for number, turn in enumerate(turns)), *((at, -1) for at in published)]
    in_flight: list[SampledTurn] = []
    for at, number in sorted(events):
        if number < 0:
            caches.clear()
            in_flight = [turn for turn in in_flight if turn.ended > at]
        else:
            in_flight.append(turns[number])
        for turn in in_flight if number < 0 else in_flight[-1:]:
            cache = caches[turn.engine]
            yield at, cache.read(turn.context_at(at))
            cache.keep(turn.context, turn.sampled)


class _Sums:
    """Sums of what happens at points in time."""

    def __init__(self, times: Array, amounts: Array) -> None:
        order = np.argsort(times)
        self._times, self._before = times[order], np.concatenate([[0.0], np.cumsum(amounts[order])])

    def between(self, begin: float, end: float) -> float:
        first, last = np.searchsorted(self._times, [begin, end])
        return float(self._before[last] - self._before[first])
