"""Publication: one object transfers the learner's weights to the engines and proves that they serve them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Protocol, TypeVar

from agentrl.engine.protocol import Engine
from agentrl.errors import AgentRLError, DeadlineError, WeightsError
from agentrl.types import Version
from agentrl.weights.canary import LogprobCanary
from agentrl.weights.delivery import Delivery
from agentrl.weights.transfer import PATIENCE, Transfer, TransferError, of_engine

T = TypeVar("T")
Refill = Callable[[Engine], Awaitable[None]]


class Fleet(Protocol):
    """The engines of a run: `agentrl.cluster.engines.Engines`."""

    def serving(self) -> Mapping[int, Engine]:
        """Return the engines that are up, by engine id."""

    def replace(self, lost: Mapping[int, Engine], why: str) -> None:
        """Replace engines that one cause has lost, in the background. New ones are refilled by `Publisher.refill`."""

    async def sleep(self, deadline_s: float) -> None:
        """Free the GPUs for the learner that shares them. An engine that fails is replaced."""

    async def wake(self, deadline_s: float) -> None:
        """Take memory for weights back, which must be published before anything is sampled; the same for failures."""


@dataclass(frozen=True, slots=True)
class PublishTimings:
    """Seconds of each part of a publication, those of the slowest engine; `canary` is its difference.

    `mib` is the size of what was staged, 0 for a transfer between GPUs. `stage_s` is how long an engine waited for
    buckets that were being staged, or for a send to all engines, and `learner_canary_s` how long for the learner's
    logprobs of the canary.
    """

    learner_canary_s: float = 0.0
    stage_s: float = 0.0
    pause_s: float = 0.0
    load_s: float = 0.0
    verify_s: float = 0.0
    resume_s: float = 0.0
    canary_s: float = 0.0
    canary: float = 0.0
    mib: float = 0.0


class Stopwatch:
    """The seconds of each part of an engine's update, under one deadline that counts from `since`."""

    def __init__(self, deadline_s: float, since: float) -> None:
        self.seconds: dict[str, float] = {}
        self._deadline_s, self._ends_at = deadline_s, since + deadline_s

    async def lap(self, part: str, call: Callable[[float], Awaitable[T]]) -> T:
        """Return the result of `call(seconds left)`, a part; raises DeadlineError when no time is left."""
        began = time.monotonic()
        if began >= self._ends_at:
            raise self._late
        try:
            return await call(self._ends_at - began)
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.monotonic() - began

    async def wait(self, part: str, result: Awaitable[T]) -> T:
        """Return a result that has no deadline of its own; raises DeadlineError when no time is left."""

        async def within(seconds: float) -> T:
            try:
                return await asyncio.wait_for(result, seconds)
            except TimeoutError:
                raise self._late from None

        return await self.lap(part, within)

    @property
    def _late(self) -> DeadlineError:
        return DeadlineError(f"publishing took longer than {self._deadline_s:g} s")


class Publisher:
    """Publishes the learner's weights to all engines, and again to an engine that was restarted.

    An update holds `lock` from its beginning to the end of its publication, and so does a refill: an engine never loads
    weights that are changing. After the load `canary` compares each engine with the learner, whose logprobs of a text
    `score` returns. `shares_gpus`: engines and learner take turns on GPUs. Engines sleep when they have started, and
    between `yield_gpus` and the next publication; the memory of their caches comes back after the new weights.
    """

    def __init__(
        self,
        fleet: Fleet,
        transfer: Transfer,
        deadline_s: float,
        canary: LogprobCanary | None = None,
        score: Callable[[tuple[int, ...], float], Awaitable[Sequence[float]]] | None = None,
        *,
        shares_gpus: bool = False,
    ) -> None:
        self.lock = asyncio.Lock()
        self._fleet, self._transfer, self._deadline_s = fleet, transfer, deadline_s
        self._canary, self._score = canary, score
        self._shares_gpus = self._is_asleep = shares_gpus
        self._version: Version | None = None

    async def yield_gpus(self) -> None:
        """Free the GPUs for the learner, if it shares them. Idempotent until the next publication."""
        if self._shares_gpus and not self._is_asleep:
            await self._fleet.sleep(self._deadline_s)
            self._is_asleep = True

    async def publish(self, version: Version) -> PublishTimings:
        """Let every engine serve the present weights as `version`; call with `lock` held.

        An engine samples on as soon as its own load is done. One that fails is replaced.
        """
        self._version = version
        if self._is_asleep:
            await self._fleet.wake(self._deadline_s)
            self._is_asleep = False
        engines = self._fleet.serving()
        outcomes = await self._publish(list(engines.values()), version)
        by_failure: dict[AgentRLError, dict[int, Engine]] = {}
        for (engine_id, engine), outcome in zip(engines.items(), outcomes, strict=True):
            if isinstance(outcome, AgentRLError):
                by_failure.setdefault(outcome, {})[engine_id] = engine
        for failure, lost in by_failure.items():
            self._fleet.replace(lost, str(failure))
        return _slowest([outcome for outcome in outcomes if isinstance(outcome, PublishTimings)])

    async def keep(self) -> PublishTimings:
        """Let the engines go on with the version they hold, after a step without an update; call with `lock` held."""
        if self._is_asleep and self._version is not None:
            return await self.publish(self._version)
        return PublishTimings()

    async def refill(self, engine: Engine) -> None:
        """Let an engine that was restarted serve the present version. Raises what goes wrong."""
        async with self.lock:
            if self._version is None:
                raise WeightsError("nothing was published yet")
            if self._shares_gpus:
                await engine.wake(self._deadline_s)
            [outcome] = await self._publish([engine], self._version)
            if isinstance(outcome, AgentRLError):
                raise outcome

    async def _publish(self, engines: Sequence[Engine], version: Version) -> list[PublishTimings | AgentRLError]:
        """Return for each engine how long it took, or why it does not serve `version`."""
        failed = await self._transfer.prepare(engines, self._deadline_s * PATIENCE)
        ready = [engine for index, engine in enumerate(engines) if index not in failed]
        outcomes = iter(await self._delivered(ready, version) if ready else ())
        return [failed.get(index) or next(outcomes) for index in range(len(engines))]

    async def _delivered(self, engines: Sequence[Engine], version: Version) -> list[PublishTimings | AgentRLError]:
        began = time.monotonic()
        try:
            async with self._transfer.opened(engines, version, self._deadline_s) as delivery:
                sent_s = time.monotonic() - began
                scoring = asyncio.create_task(self._scored(delivery))
                try:
                    updates = [
                        self._update(reader, engine, delivery, scoring, began, sent_s)
                        for reader, engine in enumerate(engines)
                    ]
                    outcomes = await asyncio.gather(*updates, return_exceptions=True)
                finally:
                    scoring.cancel()
                    await asyncio.gather(scoring, return_exceptions=True)
            return [one if isinstance(one, PublishTimings) else of_engine(one) for one in outcomes]
        except TransferError as error:
            return [error for _ in engines]

    async def _scored(self, delivery: Delivery | None) -> Sequence[float]:
        """Return the learner's logprobs of the canary's text, when it has no bucket left to write."""
        if delivery is not None:
            await delivery.staged()
        return await self._score(self._canary.ids, self._deadline_s) if self._canary and self._score else ()

    async def _update(
        self,
        reader: int,
        engine: Engine,
        delivery: Delivery | None,
        scoring: asyncio.Task[Sequence[float]],
        since: float,
        sent_s: float,
    ) -> PublishTimings:
        watch, difference = Stopwatch(self._deadline_s, since), 0.0
        if delivery is not None:
            try:
                await self._load(reader, engine, delivery, watch)
            finally:
                delivery.leave(reader)
        else:
            watch.seconds["stage_s"] = sent_s
        await watch.lap("resume_s", engine.resume)
        if self._canary is not None:
            # First after resume: until it passes, nothing that this version samples may be trained.
            logprobs = await watch.lap("canary_s", partial(engine.score, self._canary.ids))
            expected = await watch.wait("learner_canary_s", asyncio.shield(scoring))
            difference = self._canary.check(logprobs, expected)
        mib = delivery.nbytes / (1 << 20) if delivery else 0.0
        return PublishTimings(**watch.seconds, canary=difference, mib=mib)

    @staticmethod
    async def _load(reader: int, engine: Engine, delivery: Delivery, watch: Stopwatch) -> None:
        """Load all buckets. The engine samples until the first of them is there."""
        bucket = await watch.wait("stage_s", delivery.next(reader))
        await watch.lap("pause_s", engine.pause)
        await watch.lap("load_s", engine.start_update)
        while bucket is not None:
            await watch.lap("load_s", partial(engine.load, bucket))
            bucket = await watch.wait("stage_s", delivery.next(reader))
        await watch.lap("verify_s", partial(engine.finish_update, delivery.manifest))


def _slowest(timings: Sequence[PublishTimings]) -> PublishTimings:
    parts = (max((getattr(timing, field.name) for timing in timings), default=0.0) for field in fields(PublishTimings))
    return PublishTimings(*parts)
