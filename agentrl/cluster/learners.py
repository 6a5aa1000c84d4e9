"""The learner ranks of a run, called together: a global batch goes in, reports and new weights come out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.algorithms.sample import Array, Column, TrainSequence
from agentrl.cluster.ray import ActorHandle, ActorSpec, Cluster
from agentrl.engine.protocol import Engine
from agentrl.errors import DeadlineError, LearnerDiedError, LearnerError
from agentrl.types import StepReport, Version
from agentrl.weights.staging import Staged

START_S = 600.0
NOTICE_S = 5.0  # Ray may notice a dead process later than its peers do


class Learners:
    """All ranks of the learner. If a rank fails or does not answer, the call raises LearnerError naming it."""

    def __init__(self, cluster: Cluster, specs: list[ActorSpec]) -> None:
        self._cluster = cluster
        self._ranks: list[ActorHandle] = [cluster.spawn(spec) for spec in specs]

    async def start(self) -> None:
        """Wait until every rank has loaded the model."""
        address = await self._ranks[0].address(START_S)
        starts = (self._within(rank.make(*address, deadline_s=START_S), rank.name) for rank in self._ranks)
        for rank, pid in zip(self._ranks, await asyncio.gather(*starts), strict=True):
            self._cluster.register(rank.name, pid)

    async def score(
        self, batch: list[TrainSequence], columns: Sequence[Column], deadline_s: float
    ) -> dict[Column, list[Array]]:
        """Compute columns, such as logprobs of the reference, for every sequence of the batch."""
        scores = await self._all("score", self._cluster.share(batch), list(columns), deadline_s=deadline_s)
        merged = {
            column: {index: row for score in scores for index, row in score[column].items()} for column in columns
        }
        return {column: [rows[index] for index in range(len(batch))] for column, rows in merged.items()}

    async def step(self, batch: list[TrainSequence], state: Mapping[str, float], deadline_s: float) -> list[StepReport]:
        """Train one global batch with the state of the algorithm; returns the report of each rank."""
        return await self._all("step", self._cluster.share(batch), dict(state), deadline_s=deadline_s)

    async def stage(self, version: Version, deadline_s: float) -> Staged:
        """Stage the weights in files that engines on this machine load."""
        staged: Staged = (await self._all("stage", version, deadline_s=deadline_s))[0]
        return staged

    async def send(self, version: Version, engines: Sequence[Engine], deadline_s: float) -> None:
        """Send the weights to paused engines (RemoteEngine), from GPU to GPU."""
        await self._all("send", version, list(engines), deadline_s, deadline_s=deadline_s)

    async def logprobs(self, ids: tuple[int, ...], deadline_s: float) -> tuple[float, ...]:
        """Return the logprobs of ids[1:] under the present weights."""
        rows = await self._all("logprobs", [list(ids)], deadline_s=deadline_s)
        return tuple(rows[0][0])

    async def save(self, folder: Path, state: Mapping[str, float], deadline_s: float) -> None:
        """Write a checkpoint with the state of the algorithm; every rank writes its part."""
        await self._all("save", folder, dict(state), deadline_s=deadline_s)

    async def load(self, folder: Path, deadline_s: float) -> dict[str, float]:
        """Load a checkpoint; returns the state of the algorithm."""
        states: list[dict[str, float]] = await self._all("load", folder, deadline_s=deadline_s)
        return states[0]

    async def _all(self, method: str, *args: Any, deadline_s: float) -> list[Any]:
        calls = [
            asyncio.create_task(self._within(rank.call(method, *args, deadline_s=deadline_s), rank.name))
            for rank in self._ranks
        ]
        try:
            return await _results(calls)
        finally:
            # A rank that fails leaves the others waiting in a collective.
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    @staticmethod
    async def _within(call: Any, name: str) -> Any:
        try:
            return await call
        except DeadlineError as error:
            raise LearnerError(f"{error}: {name} does not answer. The run can be resumed.") from None
        except LearnerError as error:
            raise type(error)(f"{error}. The run can be resumed from its last checkpoint.") from None


async def _results(calls: Sequence[asyncio.Task[Any]]) -> list[Any]:
    """Return the results. Raises the error of a rank that died rather than that of a rank that lost its peer."""
    await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
    errors = _errors(calls)
    if errors and not any(isinstance(error, LearnerDiedError) for error in errors):
        await asyncio.wait(calls, timeout=NOTICE_S)
        errors = _errors(calls)
    if errors:
        raise min(errors, key=lambda error: not isinstance(error, LearnerDiedError))
    return [call.result() for call in calls]


def _errors(calls: Sequence[asyncio.Task[Any]]) -> list[BaseException]:
    return [error for call in calls if call.done() and (error := call.exception()) is not None]
