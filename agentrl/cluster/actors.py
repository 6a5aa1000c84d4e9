"""The processes of a run: engines, rollout workers and learner ranks, started side by side and ended together."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agentrl.cluster.engines import Engines
from agentrl.cluster.learners import Learners
from agentrl.cluster.placement import bundles
from agentrl.cluster.processes import ProcessRegistry
from agentrl.cluster.ray import Cluster
from agentrl.cluster.signals import Stop
from agentrl.cluster.specs import engine_spec, learner_spec, worker_spec
from agentrl.cluster.workers import Workers
from agentrl.config.schema import Config
from agentrl.engine.protocol import Engine
from agentrl.engine.remote import RemoteEngine
from agentrl.errors import RunError
from agentrl.metrics.timer import PhaseTimer
from agentrl.records.folder import RunFolder
from agentrl.records.restarts import Restarts
from agentrl.weights.staging import discard_leftovers, folder_key

END_S = 10.0

Register = Callable[[str, int], None]


@dataclass(frozen=True)
class Losses:
    """Processes that are lost and replaced: shown to the user, and recorded for the summary."""

    restarts: Restarts
    note: Callable[[str], None]

    def add(self, process: str, why: str) -> None:
        """Show and record a loss."""
        self.note(f"{process} is lost and will be replaced: {why}")
        self.restarts.add(process, why)


@dataclass(frozen=True)
class Actors:
    """Actors of a run (an evaluation has no learners)."""

    engines: Engines
    workers: Workers
    learners: Learners
    losses: Losses

    def watch(self, refill: Callable[[Engine], Awaitable[None]], stop: Stop) -> None:
        """Replace lost engines from now on; `refill` publishes the present weights to an engine."""
        self.engines.watch(refill, EngineEvents(self.workers, self.losses, stop))


@dataclass(frozen=True)
class EngineEvents:
    """Connects the engines to the rest of the run: the user, the rollout workers and the end of the run."""

    workers: Workers
    losses: Losses
    stop: Stop

    async def lost(self, engine_id: int, why: str) -> None:
        """Record the loss, and let the workers send the engine's requests elsewhere."""
        self.losses.add(f"engine {engine_id}", why)
        await self.workers.broadcast("engine_lost", engine_id, why)

    async def restarted(self, engine_id: int, engine: RemoteEngine) -> None:
        """Let the workers send requests to the new engine."""
        self.losses.note(f"engine {engine_id} is back")
        await self.workers.broadcast("engine_restarted", engine_id, engine)

    def failed(self, error: BaseException) -> None:
        """Stop the run."""
        self.stop.call(error)


@asynccontextmanager
async def actors(
    config: Config,
    model: Path,
    folder: RunFolder,
    stop: Stop,
    timer: PhaseTimer,
    note: Callable[[str], None],
    *,
    learns: bool = True,
) -> AsyncIterator[Actors]:
    """Start the actors; on exit every process has ended. `note` shows the user which processes are replaced."""
    registry = ProcessRegistry(folder.path)
    with timer.part("ray"):
        cluster = Cluster(f"agentrl-{folder.path.name}", bundles(config))
    register = registry.register if cluster.is_local else _ends_with_its_node
    try:
        for pid in cluster.pids():
            register("ray", pid)
        await stop.cut(timer.timed("ray", cluster.ready(config.engine.start_timeout_s)))
        with closing(Restarts(folder)) as restarts:
            team = _spawned(cluster, config, model, folder.path, register, Losses(restarts, note), learns=learns)
            try:
                await stop.cut(_started(team, timer, learns=learns))
                yield team
            finally:
                timer.enter("close")
                with suppress(RunError):  # a full disk keeps nothing from ending
                    await asyncio.to_thread(registry.register_descendants)
                await asyncio.gather(team.workers.close(), team.engines.close())
    finally:
        await asyncio.to_thread(cluster.close)
        await clean_up(folder.path)


def _spawned(
    cluster: Cluster, config: Config, model: Path, folder: Path, register: Register, losses: Losses, *, learns: bool
) -> Actors:
    engines = Engines(cluster, partial(engine_spec, config, model, scratch_of(folder)), config.engine, register)
    ranks = range(config.learner.ranks if learns else 0)
    learners = Learners(cluster, [learner_spec(config, model, folder, rank) for rank in ranks], register)
    workers = Workers(
        cluster,
        lambda worker_id: worker_spec(config, model, engines.current, worker_id),
        config.rollout.workers,
        config.engine.restarts,
        register,
        losses.add,
    )
    return Actors(engines, workers, learners, losses)


async def _started(team: Actors, timer: PhaseTimer, *, learns: bool) -> None:
    """Start all actors side by side; the first failure cancels the others."""
    parts = [timer.timed("engines", team.engines.start()), timer.timed("workers", team.workers.start())]
    if learns:
        parts.append(timer.timed("learner", team.learners.start()))
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _ends_with_its_node(role: str, pid: int) -> None:
    """Register nothing: a process on another machine ends with its Ray node, which outlives this run."""


def scratch_of(folder: Path) -> Path:
    """Return where the sockets of a run are, whose paths must be short; a resume after a kill removes it."""
    return Path(tempfile.gettempdir()) / f"agentrl-{folder_key(folder)}"


async def clean_up(folder: Path) -> None:
    """End every process that the run in `folder` started, and remove its files outside the folder. Idempotent."""
    await asyncio.to_thread(ProcessRegistry(folder).end_leftovers, END_S)
    discard_leftovers(folder)
    shutil.rmtree(scratch_of(folder), ignore_errors=True)
