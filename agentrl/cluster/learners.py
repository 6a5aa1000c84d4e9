"""The learner ranks of a run, called together: one global batch in, one report out, new weights staged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentrl.cluster.ray import ActorHandle, ActorSpec, Cluster
from agentrl.errors import DeadlineError, LearnerDiedError, LearnerError
from agentrl.types import StepReport, TrainSequence, Version

START_S = 600.0
NOTICE_S = 5.0  # Ray may know of a dead process later than its peers do


class Learners:
    """All ranks of the learner. When one fails or does not answer, the call raises LearnerError naming the rank."""

    def __init__(self, cluster: Cluster, roles: list[ActorSpec], register: Callable[[str, int], None]) -> None:
        self._cluster, self._register = cluster, register
        self._ranks: list[ActorHandle] = [cluster.spawn(role) for role in roles]

    async def start(self) -> None:
        """Wait until every rank has loaded the model."""
        if not self._ranks:
            return
        meeting = await self._ranks[0].address(START_S)
        makings = (self._within(rank.make(*meeting, deadline_s=START_S), rank.name) for rank in self._ranks)
        for rank, pid in zip(self._ranks, await asyncio.gather(*makings), strict=True):
            self._register(rank.name, pid)

    async def step(self, batch: list[TrainSequence], deadline_s: float) -> list[StepReport]:
        """Train one global batch; the report of each rank."""
        return await self._all("step", self._cluster.share(batch), deadline_s=deadline_s)

    async def stage(self, version: Version, deadline_s: float) -> Any:
        """Write the weights down for the engines; what rank 0 says of them (`weights.sender.Staged`)."""
        return (await self._all("stage", version, deadline_s=deadline_s))[0]

    async def send(self, version: Version, engines: Sequence[ActorHandle], deadline_s: float) -> None:
        """Send the weights to paused engines, from GPU to GPU."""
        await self._all("send", version, list(engines), deadline_s, deadline_s=deadline_s)

    async def logprobs(self, ids: tuple[int, ...], deadline_s: float) -> tuple[float, ...]:
        """Logprobs of ids[1:] under the present weights."""
        rows = await self._all("logprobs", [list(ids)], deadline_s=deadline_s)
        return tuple(rows[0][0])

    async def save(self, folder: Path, deadline_s: float) -> None:
        """Write a checkpoint (every rank its part)."""
        await self._all("save", folder, deadline_s=deadline_s)

    async def load(self, folder: Path, deadline_s: float) -> None:
        """Go on from a checkpoint."""
        await self._all("load", folder, deadline_s=deadline_s)

    async def _all(self, method: str, *args: Any, deadline_s: float) -> list[Any]:
        calls = [
            asyncio.create_task(self._within(rank.call(method, *args, deadline_s=deadline_s), rank.name))
            for rank in self._ranks
        ]
        try:
            return await _results(calls)
        finally:
            # A rank that failed leaves the others waiting in a collective: nobody waits with them.
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
    """The results, or the error of the rank that died rather than that of one which only lost its peer."""
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
