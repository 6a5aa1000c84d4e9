"""The learner ranks of a run, called together: a global batch goes in, reports and new weights come out."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from agentrl.algorithms.sample import Array, Column, TrainSequence
from agentrl.cluster.ray.actors import ActorHandle, ActorSpec
from agentrl.cluster.ray.cluster import Cluster
from agentrl.cluster.scorer_process import ScorerProcess
from agentrl.cluster.signals import side_by_side, together
from agentrl.engine.protocol import Engine
from agentrl.errors import DeadlineError, LearnerDiedError, LearnerError, WeightsError
from agentrl.types import StepReport, Version
from agentrl.weights.staging import StagedBucket

NOTICE_S = 75.0  # the peers of a rank notice its end at once, Ray that of its machine after about a minute
ENGINES_SHARE = 0.75
"""Of the deadline of a send: engines that do not answer are found before the ranks that wait for them seem silent."""


class Ranks:
    """The ranks of a process group, called together. If one fails or does not answer, LearnerError names it."""

    def __init__(self, cluster: Cluster, specs: Iterable[ActorSpec], start_s: float) -> None:
        self._cluster, self._start_s = cluster, start_s
        self._ranks: list[ActorHandle] = [cluster.spawn(spec) for spec in specs]
        self.host = ""
        """The address of rank 0's host in the cluster, once the ranks have started."""

    def __len__(self) -> int:
        return len(self._ranks)

    async def start(self) -> None:
        """Wait until every rank has loaded its models."""
        self.host, port = await self._ranks[0].address(self._start_s)
        starts = (within(rank.make(self.host, port, deadline_s=self._start_s), rank.name) for rank in self._ranks)
        for process in await together(starts):
            self._cluster.register(process)

    async def devices(self, ranks: Iterable[int]) -> list[str]:
        """Return the GPUs of these ranks, as their host numbers them; also before they have started."""
        found = await asyncio.gather(*(self._ranks[rank].devices(self._start_s) for rank in ranks))
        return [device for of_rank in found for device in of_rank]

    def calls(self, method: str, *args: Any, deadline_s: float) -> list[Coroutine[Any, Any, Any]]:
        """Return the calls of a method on all ranks, not yet begun."""
        return [within(rank.call(method, *args, deadline_s=deadline_s), rank.name, rank.where) for rank in self._ranks]

    async def all(self, method: str, *args: Any, deadline_s: float) -> list[Any]:
        """Call a method on all ranks; returns their results."""
        return await _together(self.calls(method, *args, deadline_s=deadline_s))


class _SilentError(LearnerError):
    """A process did not answer in time: `who` it is, and `what` took too long."""

    def __init__(self, error: DeadlineError, name: str, where: str) -> None:
        super().__init__(f"{error}: {name} does not answer. The run can be resumed.")
        self.who = f"{name}{where}"
        self.what = str(error).removeprefix(f"{self.who}: ")


async def within(call: Any, name: str, where: str = "") -> Any:
    """Await a call of a process. Raises LearnerError that names it and says that the run can be resumed."""
    try:
        return await call
    except DeadlineError as error:
        raise _SilentError(error, name, where) from None
    except LearnerError as error:
        raise type(error)(f"{error}. The run can be resumed from its last checkpoint.") from None


class Learners:
    """The ranks of the policy, those of a critic that has its own, and the process of scorers that have one.

    If one fails or does not answer, the call raises LearnerError naming it.
    """

    def __init__(
        self,
        cluster: Cluster,
        specs: Iterable[ActorSpec],
        start_s: float,
        scorers: ScorerProcess | None = None,
        critic: Iterable[ActorSpec] = (),
    ) -> None:
        self._cluster, self._scorers = cluster, scorers
        self.policy, self._critic = Ranks(cluster, specs, start_s), Ranks(cluster, critic, start_s)
        self._groups = [ranks for ranks in (self._critic, self.policy) if ranks]

    @property
    def host(self) -> str:
        """The address of the host that stages weights: that of the policy's rank 0, once it has started."""
        return self.policy.host

    async def start(self) -> None:
        """Wait until every process has loaded its models."""
        await _together([part.start() for part in (*self._groups, self._scorers) if part])

    async def score(
        self, batch: list[TrainSequence], columns: Sequence[Column], deadline_s: float
    ) -> dict[Column, list[Array]]:
        """Compute columns, such as logprobs of the reference, for every sequence of the batch."""
        shared = self._cluster.share(batch)
        separate = [column for column in columns if self._scorers and column in self._scorers.columns]
        values = [column for column in columns if self._critic and column == "values"]
        own = [column for column in columns if column not in (*separate, *values)]
        calls = self.policy.calls("score", shared, own, deadline_s=deadline_s) if own else []
        calls += self._critic.calls("score", shared, values, deadline_s=deadline_s) if values else []
        if self._scorers and separate:
            scores_s = deadline_s * len(self.policy)  # one process does the work of all ranks
            calls.append(within(self._scorers.score(shared, separate, scores_s), self._scorers.name))
        scores = await _together(calls)
        merged = {
            column: {index: row for score in scores for index, row in score.get(column, {}).items()}
            for column in columns
        }
        return {column: [rows[index] for index in range(len(batch))] for column, rows in merged.items()}

    async def step(self, batch: list[TrainSequence], state: Mapping[str, float], deadline_s: float) -> list[StepReport]:
        """Train one global batch with the state of the algorithm; returns the report of each rank.

        A separate critic learns at the same time, and the reports tell how; the digest is that of all ranks.
        """
        reports = await self._all("step", self._cluster.share(batch), dict(state), deadline_s=deadline_s)
        return with_critic(reports[len(self._critic) :], reports[: len(self._critic)])

    async def buckets(self, _version: Version, deadline_s: float) -> AsyncGenerator[StagedBucket]:
        """Stage the weights in files on the host of rank 0; each bucket is written when it is asked for."""
        await self.policy.all("begin_staging", deadline_s=deadline_s)
        is_last = False
        while not is_last:
            bucket: StagedBucket = (await self.policy.all("stage_next", deadline_s=deadline_s))[0]
            is_last = bucket.is_last
            yield bucket

    async def send(self, version: Version, engines: Sequence[Engine], deadline_s: float) -> None:
        """Send the weights to paused engines (RemoteEngine), from GPU to GPU. Raises WeightsError if they fail."""
        await self.policy.all("send", version, list(engines), deadline_s * ENGINES_SHARE, deadline_s=deadline_s)

    async def logprobs(self, ids: tuple[int, ...], deadline_s: float) -> tuple[float, ...]:
        """Return the logprobs of ids[1:] under the present weights."""
        rows = await self.policy.all("logprobs", [list(ids)], deadline_s=deadline_s)
        return tuple(rows[0][0])

    async def save(self, folder: Path, state: Mapping[str, float], deadline_s: float) -> None:
        """Write a checkpoint with the state of the algorithm; every rank writes its part."""
        for ranks in self._groups:  # a separate critic's begin what the policy's complete
            await ranks.all("save", folder, dict(state), deadline_s=deadline_s)

    async def load(self, folder: Path, deadline_s: float) -> dict[str, float]:
        """Load a checkpoint; returns the state of the algorithm."""
        states: list[dict[str, float]] = await self._all("load", folder, deadline_s=deadline_s)
        return states[0]

    async def _all(self, method: str, *args: Any, deadline_s: float) -> list[Any]:
        """Call a method on all ranks; returns the results of a separate critic's first."""
        groups = (ranks.calls(method, *args, deadline_s=deadline_s) for ranks in self._groups)
        return await _together(chain.from_iterable(groups))


def with_critic(policy: Sequence[StepReport], critic: Sequence[StepReport]) -> list[StepReport]:
    """Return the reports of the policy's ranks with what a separate critic reports, and one digest of all weights.

    The digest is that of a critic on the policy's ranks, if there are as many.
    """
    digests = (one.digest for pair in zip_longest(policy, critic) for one in pair if one is not None)
    digest = hashlib.sha256("".join(digests).encode()).hexdigest()[:16]
    meters, failed = (critic[0].meters, critic[0].nonfinite_steps) if critic else ({}, 0)
    return [
        replace(
            one,
            digest=digest,
            meters={**one.meters, **meters},
            nonfinite_steps=one.nonfinite_steps + failed,
            seconds=max(each.seconds for each in (one, *critic)),
        )
        for one in policy
    ]


async def _together(calls: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Await all calls. A failure cancels the others: a rank that fails leaves them waiting in a collective."""
    async with side_by_side(calls) as tasks:
        return await _results(tasks)


async def _results(calls: Sequence[asyncio.Task[Any]]) -> list[Any]:
    """Return the results. Raises the error of a rank that died, else the first, but for one that does not answer.

    A rank that lost its peer fails too, and one that waits for a peer is silent. Of ranks that do not answer all but
    one may wait for that one: the error names them all. A WeightsError, after which the ranks go on, is raised if all
    others have ended well.
    """
    await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
    errors = _errors(calls)
    if errors and not any(isinstance(error, LearnerDiedError) for error in errors):
        can_go_on = all(isinstance(error, WeightsError) for error in errors)
        await asyncio.wait(calls, timeout=None if can_go_on else NOTICE_S)  # each call has a deadline
        errors += [error for error in _errors(calls) if error not in errors]
    if errors:
        first = min(errors, key=_order)
        silent = [error for error in errors if isinstance(error, _SilentError)]
        raise _all_silent(silent) if first in silent[:1] and len(silent) > 1 else first
    return [call.result() for call in calls]


def _order(error: BaseException) -> int:
    kinds = LearnerDiedError, _SilentError, WeightsError
    died, is_silent, can_go_on = (isinstance(error, kind) for kind in kinds)
    return 0 if died else 2 if is_silent else 3 if can_go_on else 1


def _all_silent(errors: Sequence[_SilentError]) -> LearnerError:
    ranks = ", ".join(error.who for error in errors)
    return LearnerError(
        f"{ranks}: {errors[0].what}: none of them answers. Ranks wait for each other, so any of them may be the cause: "
        "see whether its process is stopped, or its host overloaded or cut off. The run can be resumed."
    )


def _errors(calls: Sequence[asyncio.Task[Any]]) -> list[BaseException]:
    return [error for call in calls if call.done() and (error := call.exception()) is not None]
