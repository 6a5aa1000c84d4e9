"""The processes of a run: engines, rollout workers and learner ranks, started side by side and ended together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path

from agentrl.cluster.engines import Engines
from agentrl.cluster.learners import Learners
from agentrl.cluster.processes import ProcessRegistry
from agentrl.cluster.ray import Cluster
from agentrl.cluster.roles import RemoteEngine, engine_spec, is_shared, learner_spec, worker_spec
from agentrl.cluster.scratch import discard_scratch, scratch_of
from agentrl.cluster.signals import Stop
from agentrl.cluster.workers import Workers
from agentrl.config.schema import Config
from agentrl.errors import RunError
from agentrl.records.folder import RunFolder
from agentrl.records.restarts import Restarts
from agentrl.report.terminal import TerminalView

END_S = 10.0

Register = Callable[[str, int], None]


@dataclass(frozen=True)
class Actors:
    """Everybody who works for a run; an evaluation has no learners."""

    engines: Engines
    workers: Workers
    learners: Learners


@asynccontextmanager
async def actors(
    config: Config, model: Path, folder: RunFolder, stop: Stop, view: TerminalView, *, learns: bool = True
) -> AsyncIterator[Actors]:
    """The actors at work; when the context is left, however that happens, every process has ended."""
    registry = ProcessRegistry(folder.path)
    shared = [{"GPU": 1.0}] * max(config.engine.count, config.learner.ranks) if is_shared(config) else None
    timer = view.timer
    with timer.part("ray"):
        cluster = Cluster(f"agentrl-{folder.path.name}", shared)
    register = registry.register if cluster.is_local else _elsewhere
    try:
        for pid in cluster.pids():
            register("ray", pid)
        await stop.cut(timer.timed("ray", cluster.ready(config.engine.start_timeout_s)))
        team = _spawned(cluster, config, model, folder, register, learns=learns)
        try:
            engines, workers = (
                timer.timed("engines", team.engines.start()),
                timer.timed("workers", team.workers.start()),
            )
            learners = [timer.timed("learner", team.learners.start())] if learns else []
            await stop.cut(_together(engines, workers, *learners))
            with closing(Restarts(folder)) as restarts:
                _look_after(team, restarts, view, stop)
                yield team
        finally:
            timer.enter("close")
            with suppress(RunError):  # a full disk keeps nothing from ending
                await asyncio.to_thread(registry.register_descendants)
            await asyncio.gather(team.workers.close(), team.engines.close())
    finally:
        await asyncio.to_thread(cluster.close)
        await asyncio.to_thread(registry.end_leftovers, END_S)
        discard_scratch(folder.path)


def _spawned(
    cluster: Cluster, config: Config, model: Path, folder: RunFolder, register: Register, *, learns: bool
) -> Actors:
    engine = config.engine
    engines = Engines(
        cluster,
        lambda place: engine_spec(config, str(model), place, scratch_of(folder.path)),
        engine.count,
        engine.restarts,
        engine.start_timeout_s,
        register,
    )
    ranks = range(config.learner.ranks if learns else 0)
    learners = Learners(cluster, [learner_spec(config, model, folder.path, rank) for rank in ranks], register)
    workers = Workers(
        cluster,
        lambda place: worker_spec(config, str(model), place, engines.remotes),
        config.rollout.workers,
        engine.restarts,
        register,
    )
    return Actors(engines, workers, learners)


def _look_after(team: Actors, restarts: Restarts, view: TerminalView, stop: Stop) -> None:
    """From now on a dead engine is replaced, and everybody hears of it; as they do of a worker that was."""

    def lost(process: str, why: str) -> None:
        view.note(f"{process} is lost and started anew: {why}")
        restarts.add(process, why)

    async def told(place: int, engine: RemoteEngine | None, why: str) -> None:
        if engine is None:
            lost(f"engine {place}", why)
            await team.workers.broadcast("engine_lost", place, why)
        else:
            view.note(f"engine {place} is back")
            await team.workers.broadcast("engine_restarted", place, engine.remote)

    team.engines.told, team.engines.failed = told, stop.call
    team.workers.told = lambda place, why: lost(f"rollout worker {place}", why)
    team.engines.watch()


async def _together(*starting: Awaitable[None]) -> None:
    """Wait for all; the first failure ends the waiting."""
    tasks = [asyncio.ensure_future(start) for start in starting]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _elsewhere(role: str, pid: int) -> None:
    """Processes on other machines end with their Ray node, which outlives this run."""
