"""The text of `agentrl plan --simulate`: real and simulated steps side by side, the forecast, the best layouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from agentrl.config.validate import counted
from agentrl.planning.simulation.calibration import calibrate
from agentrl.planning.simulation.changes import changed
from agentrl.planning.simulation.forecast import Check, Forecast, Layout, StepTimes, check, forecast
from agentrl.planning.simulation.recorded import read
from agentrl.planning.simulation.search import Hardware, search

PHASES = ("rollout", "learn", "publish", "other")
MOST = 5
WIDTH = 11
LEAST_S = 0.05
"""Seconds below which a relative error says nothing."""


@dataclass(frozen=True, slots=True)
class Report:
    """What `agentrl plan --simulate` shows: how well the simulation predicts the run itself, and its forecasts.

    `best` are the best layouts for `hardware`, if that is given.
    """

    run: str
    check: Check
    forecast: Forecast
    hardware: Hardware | None = None
    best: tuple[Forecast, ...] = ()


def report(folder: Path, changes: Mapping[str, Any], hardware: Hardware | None = None, seed: int = 0) -> Report:
    """Simulate a recorded run: as it was, with changes, or on other hardware.

    With `hardware` the forecast is that of the recorded run, and `changes` limit the search. Raises ConfigError.
    """
    run = read(folder)
    calibration = calibrate(run, run.plain_steps)
    if hardware is None:
        found = forecast(calibration, changed(run.config, changes), seed=seed)
        return Report(str(folder), check(run, seed), found)
    best = search(calibration, hardware, changes, seed)[:MOST]
    return Report(str(folder), check(run, seed), forecast(calibration, run.config, seed=seed), hardware, tuple(best))


def lines(found: Report) -> Iterator[str]:
    """Yield the report as lines of text."""
    yield from check_lines(found.check)
    yield ""
    yield from forecast_lines(found.forecast)
    if found.hardware:
        yield ""
        yield from best_lines(found.best, found.hardware)


def check_lines(found: Check) -> Iterator[str]:
    """Yield the second half of the run's steps, real and simulated side by side."""
    yield f"Steps {found.first_step} to {found.last_step} as they were, and simulated by the steps before them:"
    yield row("", "real", "simulated", "error", "replayed", "error")
    for name, real, *others in _times(found.real, found.simulated, found.replayed):
        errors = (f"{other / real - 1:+.1%}" if abs(real) >= LEAST_S else "" for other in others)
        pairs = zip((f"{abs(other):.2f} s" for other in others), errors, strict=True)
        yield row(name, f"{abs(real):.2f} s", *chain.from_iterable(pairs))
    yield "(replayed: with the speeds of the first half and the episodes of the second)"


def _times(*columns: StepTimes) -> Iterator[tuple[Any, ...]]:
    yield "step", *(times.mean_s for times in columns)
    yield "90 %", *(times.p90_s for times in columns)
    for phase in PHASES:
        yield phase, *(getattr(times.phases, phase) for times in columns)


def forecast_lines(found: Forecast) -> Iterator[str]:
    """Yield a forecast."""
    yield f"Forecast for {layout_words(found.layout)}:"
    for name, seconds in _times(found.times):
        yield row(name, f"{abs(seconds):.2f} s")
    yield row("samples", f"{found.samples_per_s:.2f} per second")
    yield row("staleness", ", ".join(f"{age}: {share:.0%}" for age, share in enumerate(found.staleness)))
    idle = found.idle
    yield row("idle", f"engines {idle.engines:.0%}, learner {idle.learner:.0%}, workers {idle.workers:.0%}")
    yield row("dropped", f"{found.stale:.1%} stale, {found.filtered:.1%} filtered")
    yield from (f"note: {note}" for note in found.notes)


def best_lines(best: Sequence[Forecast], hardware: Hardware) -> Iterator[str]:
    """Yield the best layouts, one a line, the best in full."""
    yield f"Best layouts on {hardware}:"
    yield row("staleness", "engines", "ranks", "workers", "placement", "samples/s", "step", "idle", "stale")
    for one in best:
        layout, idle = one.layout, one.idle
        yield row(
            *(f"{count}" for count in (layout.max_staleness, layout.engines, layout.ranks, layout.workers)),
            layout.placement,
            f"{one.samples_per_s:.2f}",
            f"{one.times.mean_s:.2f} s",
            f"{idle.engines:.0%} {idle.learner:.0%}",
            f"{one.stale:.1%}",
        )
    yield from (f"note: {note}" for note in best[0].notes)


def layout_words(layout: Layout) -> str:
    """Return 'max_staleness 1, 8 x 8 samples, 2 engines, 1 learner rank, 1 worker'."""
    counts = ((layout.engines, "engine"), (layout.ranks, "learner rank"), (layout.workers, "worker"))
    parts = ", ".join(counted(count, name) for count, name in counts)
    return f"max_staleness {layout.max_staleness}, {layout.prompts} x {layout.group_size} samples, {parts}"


def row(*cells: str) -> str:
    """Return cells as one line, the first aligned to the left."""
    return "  ".join(cell.ljust(WIDTH) if n == 0 else cell.rjust(WIDTH) for n, cell in enumerate(cells)).rstrip()
