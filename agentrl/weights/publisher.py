"""One publication: engines are paused, loaded, verified, resumed and asked for the canary, all under one deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

from agentrl.engine.protocol import Engine
from agentrl.errors import AgentRLError, DeadlineError, WeightsError
from agentrl.types import Version
from agentrl.weights.canary import LogprobCanary
from agentrl.weights.staging import Staged


@dataclass(frozen=True, slots=True)
class Published:
    """Seconds of each part, of the slowest engine; `canary` is the largest logprob difference seen."""

    pause_s: float = 0.0
    load_s: float = 0.0
    verify_s: float = 0.0
    resume_s: float = 0.0
    canary_s: float = 0.0
    canary: float = 0.0


class PublicationError(WeightsError):
    """Some engines do not serve the version: `faults` says which (by their place) and why. Those must be restarted."""

    def __init__(self, message: str, faults: dict[int, AgentRLError]) -> None:
        super().__init__(message)
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Probe:
    """The canary with the learner's logprobs of its text under the weights that are published."""

    canary: LogprobCanary
    learner: Sequence[float]


async def publish(engines: Sequence[Engine], staged: Staged, probe: Probe | None, deadline_s: float) -> Published:
    """Bring `staged` into every engine; an engine that is done samples on without waiting for the others.

    Raises PublicationError when an engine failed: the others serve the new version all the same.
    """
    updates = (_update(engine, staged, probe, deadline_s) for engine in engines)
    return _judged(await asyncio.gather(*updates, return_exceptions=True), staged.manifest.version)


async def publish_sent(
    engines: Sequence[Engine],
    send: Callable[[], Awaitable[None]],
    version: Version,
    probe: Probe | None,
    deadline_s: float,
) -> Published:
    """The same where one collective `send` (see `agentrl.weights.collective`) updates all engines: all or none.

    Raises PublicationError naming every engine when `send` fails: a broken collective leaves none of them whole.
    """
    watch = _Watch(deadline_s)
    try:
        pause_s = max(await asyncio.gather(*(watch.lap(engine.pause) for engine in engines)))
        load_s = await watch.lap(lambda left_s: asyncio.wait_for(send(), left_s))
    except AgentRLError as error:
        return _judged([error for _ in engines], version)
    except TimeoutError:
        return _judged([watch.error() for _ in engines], version)
    parts = Published(pause_s=pause_s, load_s=load_s)
    return _judged(
        await asyncio.gather(*(_resume(engine, watch, probe, parts) for engine in engines), return_exceptions=True),
        version,
    )


def _judged(outcomes: Sequence[Published | BaseException], version: Version) -> Published:
    """The slowest of every part; raises PublicationError unless all outcomes are good."""
    served = [outcome for outcome in outcomes if isinstance(outcome, Published)]
    faults = {place: outcome for place, outcome in enumerate(outcomes) if isinstance(outcome, AgentRLError)}
    for outcome in outcomes:
        if not isinstance(outcome, Published | AgentRLError):
            raise outcome
    if faults:
        first = min(faults)
        places = ", ".join(map(str, faults))
        message = f"version {version} did not reach engine {first}: {faults[first]} (engines to restart: {places})"
        raise PublicationError(message, faults) from faults[first]
    return Published(*(max(getattr(part, field.name) for part in served) for field in fields(Published)))


async def _update(engine: Engine, staged: Staged, probe: Probe | None, deadline_s: float) -> Published:
    watch = _Watch(deadline_s)
    pause_s = await watch.lap(engine.pause)
    load_s = await watch.lap(engine.start_update)
    for bucket in staged.buckets:
        load_s += await watch.lap(partial(engine.load, bucket))
    verify_s = await watch.lap(partial(engine.finish_update, staged.manifest))
    return await _resume(engine, watch, probe, Published(pause_s, load_s, verify_s))


async def _resume(engine: Engine, watch: _Watch, probe: Probe | None, parts: Published) -> Published:
    parts = replace(parts, resume_s=await watch.lap(engine.resume))
    if probe is None:
        return parts
    started = time.monotonic()
    # First after resume: until it passes, nothing that this version samples may be trained.
    logprobs = await engine.score(probe.canary.ids, watch.left())
    difference = probe.canary.check(logprobs, probe.learner)
    return replace(parts, canary_s=time.monotonic() - started, canary=difference)


class _Watch:
    """One deadline over many calls."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._ends_at = time.monotonic() + deadline_s

    def left(self) -> float:
        """Seconds left; raises DeadlineError when there are none."""
        left_s = self._ends_at - time.monotonic()
        if left_s <= 0:
            raise self.error()
        return left_s

    def error(self) -> DeadlineError:
        """What a publication that takes too long raises."""
        return DeadlineError(f"publishing took longer than {self._deadline_s:g} s")

    async def lap(self, call: Callable[[float], Awaitable[None]]) -> float:
        """Seconds that `call(seconds left)` took."""
        started = time.monotonic()
        await call(self.left())
        return time.monotonic() - started
