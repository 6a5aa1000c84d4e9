"""Where the engines and learner ranks of a run are: `python -m tests.cluster.placed MODEL RUN --KEY=VALUE ...`.

The run is planned for 4 machines with 8 GPUs each. Its processes are started as for training, but load no model. The
last line has, as JSON, the seats of engines, ranks and served reward models, and that of the engine that replaces the
last one, which is killed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from agentrl.cluster import reward_models, specs
from agentrl.cluster.actors import Actors, actors
from agentrl.cluster.processes import this_host
from agentrl.cluster.signals import Stop
from agentrl.cluster.specs import make_engine
from agentrl.config.loading import load, of_flags
from agentrl.config.resolve import resolve_run
from agentrl.engine.protocol import Engine
from agentrl.engine.remote import RemoteEngine
from agentrl.engine.scripted import ScriptedEngine
from agentrl.engine.vllm.settings import VllmSpec
from agentrl.metrics.timer import PhaseTimer
from agentrl.records.folder import RunFolder
from agentrl.reward_models.client import ServedRewardModel
from tests.unit.planning.published import gpus

DEADLINE_S = 60.0


@dataclass(frozen=True)
class Seat:
    """Where a process is: its host, and the GPUs that it sees."""

    host: str
    gpus: tuple[str, ...]

    @classmethod
    def here(cls) -> Seat:
        """The seat of this process."""
        return cls(this_host(), tuple(os.environ["CUDA_VISIBLE_DEVICES"].split(",")))


@dataclass(frozen=True)
class Seats:
    """The seats of a run; `again` is that of the engine that replaces the last one."""

    engines: list[Seat]
    ranks: list[Seat]
    rewards: list[Seat]
    again: Seat


class SeatedEngine(ScriptedEngine):
    """An engine without a model."""

    async def pids(self) -> list[int]:
        return [os.getpid()]

    async def seat(self) -> Seat:
        return Seat.here()


def seated_engine(spec: VllmSpec, devices: Sequence[str] = ()) -> SeatedEngine:
    make_engine(spec, devices)  # which says what CUDA shows, and starts nothing
    return SeatedEngine()


class SeatedRank:
    """A learner rank without a model."""

    def __init__(self, *_: object) -> None: ...

    def seat(self) -> Seat:
        return Seat.here()


class SeatedReward:
    """The server of a reward model, without either: its address is its seat."""

    def __init__(
        self, _model: str, _token: str, _timeout_s: float, _is_local: bool, devices: Sequence[str] = ()
    ) -> None:
        self.devices = devices

    async def start(self) -> str:
        seen = self.devices or os.environ["CUDA_VISIBLE_DEVICES"].split(",")
        return f"http://{this_host()}/{','.join(seen)}"

    async def check(self) -> None: ...

    async def close(self) -> None: ...


class IdleWorker:
    """A rollout worker without an environment."""

    def __init__(self, *_: object) -> None: ...

    async def task_count(self, split: str) -> None: ...

    async def engine_lost(self, engine_id: int, why: str, model: str) -> None: ...

    async def engine_restarted(self, engine_id: int, engine: RemoteEngine, model: str) -> None: ...

    async def close(self) -> None: ...


async def seats(model: Path, run: Path, words: Sequence[str]) -> Seats:
    """Start a run, ask its processes, and kill the last engine."""
    flags = ((key, value) for key, _, value in (word.removeprefix("--").partition("=") for word in words))
    config = resolve_run(load(None, of_flags(flags)), gpus(8, nodes=4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(specs, "make_engine", seated_engine)
        patch.setattr(specs, "make_learner", SeatedRank)
        patch.setattr(specs, "Worker", IdleWorker)
        patch.setattr(reward_models, "make_served_model", SeatedReward)
        addresses: list[str] = []
        patch.setattr(ServedRewardModel, "move", lambda _, address: addresses.append(address))
        async with actors(config, model, RunFolder(run), Stop(), PhaseTimer(), print) as team:
            engines = [await _seat(engine) for engine in team.engines.current]
            ranks = await team.learners.policy.all("seat", deadline_s=DEADLINE_S)
            return Seats(engines, ranks, [_parsed(address) for address in sorted(addresses)], await _again(team))


def _parsed(address: str) -> Seat:
    host, _, numbers = address.removeprefix("http://").partition("/")
    return Seat(host, tuple(numbers.split(",")))


async def _seat(engine: RemoteEngine) -> Seat:
    seat: Seat = await engine.actor.call("seat", deadline_s=DEADLINE_S)
    return seat


async def _again(team: Actors) -> Seat:
    """Kill the last engine; returns the seat of the one that replaces it."""
    new: asyncio.Future[RemoteEngine] = asyncio.get_running_loop().create_future()

    async def refill(engine: Engine) -> None:
        assert isinstance(engine, RemoteEngine)
        new.set_result(engine)

    team.engines.watch(refill)
    team.engines.current[-1].actor.kill()
    return await _seat(await asyncio.wait_for(new, DEADLINE_S))


if __name__ == "__main__":
    print(msgspec.json.encode(asyncio.run(seats(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))).decode())
