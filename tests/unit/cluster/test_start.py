"""The processes of a run start side by side, those that share GPUs in turn; what fails or hangs ends the others."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agentrl.cluster.actors import Actors, _started
from agentrl.cluster.learners import Learners
from agentrl.cluster.ray.actors import ActorSpec
from agentrl.cluster.ray.cluster import Cluster
from agentrl.errors import AgentRLError, DeadlineError, EngineDiedError, LearnerError
from agentrl.metrics.timer import PhaseTimer
from tests.unit.cluster.test_engines import Process, Processes, Run

ENGINES, RANKS = ["engine 0", "engine 1"], ["learner rank 0", "learner rank 1"]
ALL = [*ENGINES, *RANKS, "worker"]
REWARD = "reward model good"


class Gates(Processes):
    """Processes that start when their gate opens, perhaps with an error."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self.of: defaultdict[str, asyncio.Future[None]] = defaultdict(asyncio.Future)

    def spawn(self, spec: ActorSpec) -> Process:
        self.spawned.append(Gated(spec, self))
        return self.spawned[-1]

    def open(self, *names: str) -> None:
        for name in names:
            self.of[name].set_result(None)


class Gated(Process):
    """A process behind a gate."""

    def __init__(self, spec: ActorSpec, gates: Gates) -> None:
        super().__init__(spec)
        self.gates = gates

    async def make(self, *args: Any, deadline_s: float) -> int:
        self.gates.begun.append(self.name)
        try:
            async with asyncio.timeout(deadline_s):
                await asyncio.shield(self.gates.of[self.name])
        except TimeoutError:
            raise DeadlineError(f"{self.name}: start took longer than {deadline_s:g} s") from None
        except asyncio.CancelledError:
            self.gates.cancelled.append(self.name)
            raise
        return await super().make(*args, deadline_s=deadline_s)


class Start:
    """The start of a run with two engines, two ranks and a worker; each rank `saw` whether the engines slept.

    With `beside` there is a reward model, which is beside a rank or has its own GPU.
    """

    def __init__(
        self, folder: Path, shares_gpus: bool, engines_s: float, ranks_s: float, beside: bool | None = None
    ) -> None:
        self.gates, self.saw = Gates(), list[bool]()
        self.run = Run(folder, 2, processes=self.gates, shares_gpus=shares_gpus, start_timeout_s=engines_s)
        engines = self.gates.spawned[:2]

        def rank() -> None:
            self.saw.append(all(getattr(process.object, "_asleep", False) for process in engines))

        learners = Learners(cast(Cluster, self.gates), [ActorSpec(name, rank) for name in RANKS], ranks_s)
        reward = self.gates.spawn(ActorSpec(REWARD, rank))

        async def start() -> None:
            await reward.make(deadline_s=60.0)

        models = SimpleNamespace(is_serving=beside is not None, shares_gpus=bool(beside), start=start)
        team = Actors(self.run.engines, self.run.workers, learners, cast(Any, models), agents=cast(Any, None))
        self.task = asyncio.create_task(_started(team, PhaseTimer(), learns=True))

    async def end(self) -> None:
        """Wait for the end of the start, and raise its error."""
        await asyncio.wait_for(self.task, 5.0)


@asynccontextmanager
async def starting(
    folder: Path,
    *,
    shares_gpus: bool = False,
    engines_s: float = 60.0,
    ranks_s: float = 60.0,
    beside: bool | None = None,
) -> AsyncIterator[Start]:
    start = Start(folder, shares_gpus, engines_s, ranks_s, beside)
    try:
        await settled()
        yield start
    finally:
        start.task.cancel()
        await asyncio.wait({start.task})
        await start.run.close()


async def settled() -> None:
    """Let everything go on until it waits for a gate."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_processes_that_share_no_gpus_start_together(tmp_path: Path) -> None:
    async with starting(tmp_path) as start:
        assert sorted(start.gates.begun) == ALL
        start.gates.open(*ALL)
        await start.end()
    assert start.gates.cancelled == []


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("shares_gpus", [True, False])
async def test_a_reward_model_waits_for_engines_whose_gpus_it_shares(
    tmp_path: Path, beside: bool, shares_gpus: bool
) -> None:
    async with starting(tmp_path, shares_gpus=shares_gpus, beside=beside) as start:
        assert (REWARD in start.gates.begun) == (not (beside and shares_gpus))
        start.gates.open(*ALL, REWARD)
        await start.end()
        assert REWARD in start.gates.begun
    assert start.saw == [True] * 3 if beside and shares_gpus else len(start.saw) == 3


async def test_ranks_start_when_all_engines_whose_gpus_they_share_sleep(tmp_path: Path) -> None:
    async with starting(tmp_path, shares_gpus=True) as start:
        assert sorted(start.gates.begun) == [*ENGINES, "worker"], "engines have GPUs of their own, and start together"
        start.gates.open("engine 1", "worker")
        await settled()
        assert sorted(start.gates.begun) == [*ENGINES, "worker"]
        start.gates.open("engine 0", *RANKS)
        await start.end()
    assert start.gates.begun[3:] == RANKS
    assert start.saw == [True, True]


@pytest.mark.parametrize("shares_gpus", [True, False], ids=["shared", "separate"])
async def test_engines_are_replaced_together(tmp_path: Path, shares_gpus: bool) -> None:
    async with starting(tmp_path, shares_gpus=shares_gpus) as start:
        start.gates.open(*ALL)
        await start.end()
        start.run.engines.watch(start.run.refill)
        start.gates.of.clear()
        start.gates.begun.clear()
        start.run.engines.replace(dict(enumerate(start.run.engines.current)), "they died")
        await settled()
        assert sorted(start.gates.begun) == ENGINES, "they have GPUs of their own"
        start.gates.open(*ENGINES)
        assert [what for what, _ in await start.run.events(4)].count("restarted") == 2


@pytest.mark.parametrize("name", ALL)
async def test_a_process_that_fails_to_start_is_named_and_ends_the_start_of_the_others(
    tmp_path: Path, name: str
) -> None:
    failed = LearnerError if name in RANKS else EngineDiedError if name in ENGINES else AgentRLError
    async with starting(tmp_path) as start:
        start.gates.of[name].set_exception(failed(f"{name}: its process died during start"))
        with pytest.raises(failed, match=f"^{name}: its process died during start"):
            await start.end()
        assert sorted(start.gates.cancelled) == [other for other in ALL if other != name]


@pytest.mark.parametrize("name", ["engine 0", "worker"])
async def test_no_rank_starts_on_the_gpus_of_engines_after_a_failure(tmp_path: Path, name: str) -> None:
    async with starting(tmp_path, shares_gpus=True) as start:
        start.gates.of[name].set_exception(AgentRLError(f"{name}: no"))
        with pytest.raises(AgentRLError, match=f"^{name}: no$"):
            await start.end()
        await settled()
        assert sorted(start.gates.begun) == [*ENGINES, "worker"]


@pytest.mark.parametrize(
    ("hanging", "limits", "error"),
    [
        ("engine 1", {"engines_s": 1.0}, DeadlineError),
        ("learner rank 1", {"ranks_s": 1.0}, LearnerError),
    ],
)
async def test_a_process_that_hangs_is_named_at_its_deadline_and_ends_the_start_of_the_others(
    tmp_path: Path, hanging: str, limits: dict[str, float], error: type[Exception]
) -> None:
    alike, others = (RANKS, ENGINES) if hanging in RANKS else (ENGINES, RANKS)
    async with starting(tmp_path, **limits) as start:
        start.gates.open(*(name for name in alike if name != hanging))
        with pytest.raises(error, match=rf"^{hanging}: start took longer than 1 s"):
            await start.end()
        assert sorted(start.gates.cancelled) == [*others, "worker"]
