"""Search for the layout of a larger machine that trains the most samples per second within a bound of staleness."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentrl.config.loading import load, of_arguments
from agentrl.config.schema import Config
from agentrl.config.validate import counted, most_ranks, other_gpus
from agentrl.errors import ConfigError
from agentrl.planning.simulation.calibration import Calibration
from agentrl.planning.simulation.changes import changed
from agentrl.planning.simulation.forecast import Forecast, check_size, forecast

BOUND = 4
"""The bound of staleness if none is given."""
SAME = 0.02
"""Two layouts whose speeds differ by less than this share are equally fast."""
STEPS = 12
EIGHTHS = 8
MAX_STALENESS, WORKERS = "rollout.max_staleness", "rollout.workers"
ENOUGH = 0.5
"""The share of the time in which workers are idle above which more of them are not tried."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a run may use: so many GPUs, or so many CPU cores."""

    gpus: int = 0
    cores: int = 0

    def __str__(self) -> str:
        return counted(self.gpus, "GPU") if self.gpus else counted(self.cores, "CPU core")


Changes = dict[str, Any]


def search(calibration: Calibration, hardware: Hardware, changes: Mapping[str, Any], seed: int = 0) -> list[Forecast]:
    """Return the forecasts of the layouts that fit the hardware, the best first.

    `changes` are kept, but for `rollout.max_staleness`, which is the bound. Layouts that are equally fast are ordered
    by staleness, then by processes. Raises ConfigError if no layout fits.
    """
    recorded = calibration.run.config
    _check(recorded, hardware)
    changed(recorded, {**changes, MAX_STALENESS: 0, **_least(recorded, hardware, changes)}, hardware.cores)
    found: list[Forecast] = []
    for layout in layouts(recorded, hardware, changes):
        for workers in _workers(recorded, layout):
            config = changed(recorded, {**layout, WORKERS: workers}, hardware.cores)
            found.append(forecast(calibration, config, hardware.cores, STEPS, seed))
            if found[-1].idle.workers > ENOUGH:
                break
    if not found:
        raise ConfigError(f"no layout fits {hardware}: give more, or change fewer settings")
    ranked = sorted(found, key=lambda one: -one.samples_per_s)
    best = ranked[0].samples_per_s
    return sorted(ranked, key=lambda one: (one.samples_per_s < best * (1 - SAME), *_cost(one, best)))


def _least(recorded: Config, hardware: Hardware, changes: Mapping[str, Any]) -> Changes:
    """Return the layout of the fewest ranks, in which only what no layout may have is refused."""
    ranks = changes.get("learner.ranks", recorded.learner.sharers)
    return {"engine.placement": "separate", "learner.ranks": ranks} if hardware.gpus else {}


def _check(recorded: Config, hardware: Hardware) -> None:
    device, flag = ("CPUs", "--cores") if recorded.device == "cpu" else ("GPUs", "--gpus")
    if bool(hardware.gpus) != (device == "GPUs"):
        raise ConfigError(f"the run was recorded on {device}, which say nothing about {hardware}: give {flag}")


def _cost(one: Forecast, best: float) -> tuple[float, ...]:
    """Return what decides between layouts: of fast ones the freshest and smallest, of the others the speed."""
    layout = one.layout
    if one.samples_per_s < best * (1 - SAME):
        return (-one.samples_per_s,)
    return layout.max_staleness, layout.engines + layout.ranks, layout.workers


def layouts(recorded: Config, hardware: Hardware, changes: Mapping[str, Any]) -> Iterator[Changes]:
    """Yield the changes of each layout that fits the hardware, but for the workers. Raises ConfigError by its size."""
    config = load(recorded, of_arguments({MAX_STALENESS: BOUND, **changes}))
    check_size(config)
    for staleness in ages(config.rollout.max_staleness):
        for placed in _placed(config, hardware, changes, staleness):
            yield {**changes, MAX_STALENESS: staleness, **placed}


def _workers(recorded: Config, layout: Changes) -> list[int]:
    """Return the numbers of workers to try: the given one, or as many as recorded, and then one for each engine."""
    if given := layout.get(WORKERS):
        return [given]
    return sorted({recorded.rollout.workers, max(recorded.rollout.workers, layout["engine.count"])})


def _placed(recorded: Config, hardware: Hardware, changes: Mapping[str, Any], staleness: int) -> Iterator[Changes]:
    """Yield how many engines and ranks there are, and whether they share GPUs; each group of ranks gets a sample."""
    episodes = recorded.rollout.samples * (1 + staleness)
    if not hardware.gpus:
        share = hardware.cores if staleness == 0 else max(1, hardware.cores // 2)
        given = changes.get("engine.count")
        most = share if given else min(share, episodes)
        yield from ({"engine.count": count} for count in _counts(most + 1, given))
        return
    gpus, size, most = hardware.gpus, recorded.engine.gpus, most_ranks(recorded)
    placement, engines, ranks = (changes.get(key) for key in ("engine.placement", "engine.count", "learner.ranks"))
    if placement != "colocate":
        left = _most(gpus, lambda n: n + engines * size + _beside(recorded, n)) if engines else None
        for learners in _counts(min(gpus, most + 1), ranks or (left and min(left, most))):
            free = gpus - learners - _beside(recorded, learners)
            count = engines or min(free // size, episodes)
            if 0 < count * size <= free and learners % recorded.learner.sharers == 0:
                yield {"engine.count": count, "learner.ranks": learners, "engine.placement": "separate"}
    count = min(_most(gpus, lambda n: n * size + _beside(recorded, n * size)), most // size)
    fits = count > 0 and engines in (None, count) and ranks in (None, count * size)
    fits = fits and count * size % recorded.learner.sharers == 0
    if placement != "separate" and staleness == 0 and fits:
        yield {"engine.count": count, "learner.ranks": count * size, "engine.placement": "colocate"}


def _most(gpus: int, taken: Callable[[int], int]) -> int:
    """Return the largest number of processes that take no more than `gpus`."""
    return max((n for n in range(1, gpus + 1) if taken(n) <= gpus), default=0)


def _beside(recorded: Config, ranks: int) -> int:
    """Return the GPUs of the roles that are on those of neither engines nor `ranks` learner ranks."""
    learner = recorded.learner.model_copy(update={"ranks": ranks})
    return other_gpus(recorded.model_copy(update={"learner": learner}))


def _counts(below: int, given: int | None) -> list[int]:
    """Return the numbers of processes to try: all below a small number, eighths of a larger one, or the given one."""
    if given is not None:
        return [given] if 0 < given < below else []
    return list(range(1, below)) if below <= EIGHTHS else sorted({below * n // EIGHTHS for n in range(1, EIGHTHS)})


def ages(bound: int) -> list[int]:
    """Return the values of `max_staleness` to try: all up to 4, then doubled ones, and the bound itself."""
    return sorted({*range(min(bound, BOUND) + 1), *(age for age in (8, 16, 32, 64) if age < bound), bound})
