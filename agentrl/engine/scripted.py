"""The shipped fake engine: real ids, logprobs, versions, delays and failures, with no model behind them.

    engine = await ScriptedEngine.ready(["The answer is 4.", Die()])

It keeps the whole Engine contract. `ZipfPolicy` stands in for the model: a true distribution over the vocabulary that
depends on the weights and on every previous token, so that scoring a sequence gives the sampled logprobs back only with
the same weights and the same context.
"""

# ruff: noqa: ARG002 (most calls of a fake return at once: no deadline can run out)
from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from agentrl.engine.scripted_policy import ZipfPolicy
from agentrl.errors import DeadlineError, EngineDiedError, EngineRefusedError, WeightsError
from agentrl.types import Completion, FinishReason, Prompt, Sampling, Version, VersionSpan, WeightManifest


@dataclass(frozen=True, slots=True)
class Sampled:
    """A reply drawn from the engine's own distribution with the request's seed and temperature."""


@dataclass(frozen=True, slots=True)
class Die:
    """The engine process dies at this request."""


@dataclass(frozen=True, slots=True)
class Hang:
    """The request gets no answer: only its deadline, its cancellation or the engine's death ends it."""


@dataclass(frozen=True, slots=True)
class Raise:
    """The request fails with `error`."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Delay:
    """`reply`, once `until()` (an event's `wait`, or a sleep) has returned."""

    until: Callable[[], Awaitable[object]]
    reply: ScriptedTurn


ScriptedTurn = str | Sequence[int] | Sampled | Die | Hang | Raise | Delay
Script = Sequence[ScriptedTurn] | Callable[[tuple[int, ...], int], ScriptedTurn]


def utf8(text: str) -> list[int]:
    """Encode a text as its bytes: one token each, 256 in all."""
    return list(text.encode())


class ScriptedEngine:
    """An Engine that answers request i with `script(prompt_ids, i)`, or with `script[i]`, cyclically.

    A text is encoded and followed by the request's first stop token, or ends with a stop string; ids are used as they
    are; without a script every reply is `Sampled`. With `pace`, the engine awaits `pace()` before each token (a
    semaphore's `acquire` releases tokens one by one); without it a reply is sampled at once. A bucket lists its
    "tensors" by "name", as in the shared-memory transfer; a "digest" beside the name is compared with that of the
    manifest.
    """

    def __init__(
        self,
        script: Script = (Sampled(),),
        *,
        encode: Callable[[str], Sequence[int]] = utf8,
        vocab_size: int = 256,
        max_model_len: int = 4096,
        can_sleep: bool = True,
        pace: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._script = script
        self._encode = encode
        self._vocab_size = vocab_size
        self._max_model_len, self._can_sleep = max_model_len, can_sleep
        self._pace = pace
        self._requests = 0
        self._started = self._paused = self._asleep = False
        self._dead = ""
        self._running = asyncio.Event()
        self._waits: set[asyncio.Timeout] = set()
        self._version: Version | None = None
        self._policy = ZipfPolicy(vocab_size, "")
        self._received: dict[str, str | None] | None = None

    @classmethod
    async def ready(cls, script: Script = (Sampled(),), **options: Any) -> ScriptedEngine:
        """Start an engine that serves version 0; `options` are those of the constructor."""
        engine = cls(script, **options)
        await engine.start(1.0)
        await engine.pause(1.0)
        await engine.start_update(1.0)
        await engine.finish_update(WeightManifest(Version(0, 0), ()), 1.0)
        await engine.resume(1.0)
        return engine

    async def start(self, deadline_s: float) -> None:
        """Become ready, without a published version."""
        self._check_alive()
        self._started = True

    async def generate(self, prompt: Prompt, sampling: Sampling, deadline_s: float) -> Completion:
        """Complete `prompt` with the script's reply to this request."""
        self._check_serves(prompt.ids)
        number, self._requests = self._requests, self._requests + 1
        reply = self._script(prompt.ids, number) if callable(self._script) else self._script[number % len(self._script)]
        async with self._deadline(f"generation {number}", deadline_s):
            await asyncio.sleep(0)  # no engine answers within the caller's own tick
            scripted = await self._scripted(reply, sampling)
            return await self._decode(prompt.ids, scripted, sampling)

    async def score(self, ids: tuple[int, ...], deadline_s: float) -> tuple[float, ...]:
        """Return the logprobs at temperature 1 of ids[1:] under the version served."""
        self._check_serves(ids)
        async with self._deadline("score", deadline_s):
            await self._running.wait()
        return self._policy.score(ids)

    async def pause(self, deadline_s: float) -> None:
        """Sample no further token until `resume`."""
        self._check_alive()
        self._paused = True
        self._settle()

    async def resume(self, deadline_s: float) -> None:
        """Continue; requests in flight continue under the version now served."""
        self._check_alive()
        if self._received is not None:
            raise EngineRefusedError("resume inside an update: finish the update, or restart the engine if it failed")
        self._paused = False
        self._settle()

    async def sleep(self, deadline_s: float) -> None:
        """Serve nothing until `wake`."""
        self._check_sleeps()
        self._asleep = True
        self._version = None
        self._settle()

    async def wake(self, deadline_s: float) -> None:
        """End `sleep`; the engine serves again once weights are published."""
        self._check_sleeps()
        self._asleep = False

    async def init_transfer(self, info: dict[str, Any], deadline_s: float) -> None:
        """Do nothing: buckets are described, not sent."""
        self._check_alive()

    async def start_update(self, deadline_s: float) -> None:
        """Begin an update; the engine must be paused."""
        self._check_alive()
        if not self._paused or self._received is not None:
            raise EngineRefusedError("start_update: pause the engine first, and finish the update before")
        self._received = {}

    async def load(self, bucket: dict[str, Any], deadline_s: float) -> None:
        """Record the tensors of the bucket."""
        self._check_alive()
        if self._received is None:
            raise EngineRefusedError("load outside an update: call start_update first")
        self._received.update((tensor["name"], tensor.get("digest")) for tensor in bucket["tensors"])

    async def finish_update(self, manifest: WeightManifest, deadline_s: float) -> None:
        """Serve `manifest.version` if what arrived equals the manifest; otherwise raise, and refuse to resume."""
        self._check_alive()
        if self._received is None:
            raise EngineRefusedError("finish_update outside an update: call start_update first")
        compare(self._received, manifest)
        self._received = None
        self._version = manifest.version
        self._policy = ZipfPolicy.of(manifest, self._vocab_size)

    async def check(self, deadline_s: float) -> None:
        """Raise EngineDiedError if the engine was killed."""
        self._check_alive()

    async def version(self) -> Version | None:
        """Return the version served, None before the first publication."""
        self._check_alive()
        return self._version

    async def close(self) -> None:
        """End the engine; requests in flight get EngineDiedError."""
        self.kill("the engine was closed")

    def kill(self, reason: str = "the engine was killed") -> None:
        """Die as a process does: every present and future caller gets EngineDiedError."""
        if self._dead:
            return
        self._dead = reason
        for wait in self._waits:
            if not wait.expired():
                wait.reschedule(0.0)

    @asynccontextmanager
    async def _deadline(self, what: str, deadline_s: float) -> AsyncIterator[None]:
        """End the block at the deadline (DeadlineError) or at the engine's death (EngineDiedError)."""
        wait = asyncio.timeout(deadline_s)
        try:
            async with wait:
                self._waits.add(wait)
                try:
                    yield
                finally:
                    self._waits.discard(wait)
        except TimeoutError as error:
            if not wait.expired():
                raise
            self._check_alive()
            raise DeadlineError(f"{what}: not done after {deadline_s} s") from error

    def _settle(self) -> None:
        """Let tokens flow, or stop them, according to the state."""
        if self._paused or self._asleep or self._version is None:
            self._running.clear()
        else:
            self._running.set()

    def _check_alive(self) -> None:
        if self._dead:
            raise EngineDiedError(f"{self._dead}: start another engine")

    def _check_sleeps(self) -> None:
        self._check_alive()
        if not self._can_sleep:
            raise EngineRefusedError("this engine cannot sleep: it was made with can_sleep=False")

    def _check_serves(self, ids: tuple[int, ...]) -> None:
        self._check_alive()
        if self._version is None or not self._started:
            raise EngineRefusedError("the engine holds no published weights: start it and publish a version first")
        if not ids or min(ids) < 0 or max(ids) >= self._vocab_size:
            raise EngineRefusedError(
                f"the prompt must have at least one id, all of them from 0 to {self._vocab_size - 1}"
            )
        if len(ids) >= self._max_model_len:
            raise EngineRefusedError(
                f"a prompt of {len(ids)} tokens leaves no room in {self._max_model_len}: shorten it"
            )

    async def _scripted(self, reply: ScriptedTurn, sampling: Sampling) -> Sequence[int] | None:
        """Return the ids to sample, None to draw them from the distribution."""
        match reply:
            case Sampled():
                return None
            case Delay(until=until, reply=later):
                await until()
                return await self._scripted(later, sampling)
            case Hang():
                never: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()
                return await never
            case Raise(error=error):
                raise error
            case Die():
                self.kill("the script made the engine die")
                raise EngineDiedError(self._dead)
            case str(text):
                ends = [text.find(stop) + len(stop) for stop in sampling.stop if stop in text]
                ids = [*self._encode(text[: min(ends, default=None)])]
                ids += [] if ends else sampling.stop_token_ids[:1]
            case _:
                ids = [*reply]
        unknown = [token for token in ids if not 0 <= token < self._vocab_size]
        if unknown:
            raise EngineRefusedError(f"the script has token {unknown[0]}, the engine only 0 to {self._vocab_size - 1}")
        return ids

    async def _decode(self, prompt: tuple[int, ...], scripted: Sequence[int] | None, sampling: Sampling) -> Completion:
        """Sample token by token, from `scripted` if there is a script, else from the distribution."""
        room = min(sampling.max_tokens, self._max_model_len - len(prompt))
        rng = random.Random(sampling.seed if sampling.seed is not None else self._requests)
        ids: list[int] = []
        logprobs: list[float] = []
        starts: list[tuple[Version, int]] = []
        served, policy, state = None, self._policy, 0
        while len(ids) < room and (scripted is None or len(ids) < len(scripted)):
            await self._may_sample()
            if served != self._version:
                assert self._version is not None, "tokens flow only while a version is served"
                served, policy, state = self._version, self._policy, self._policy.context((*prompt, *ids))
                starts.append((served, len(ids)))
            token = policy.sample(state, sampling.temperature, rng) if scripted is None else scripted[len(ids)]
            ids.append(token)
            logprobs.append(policy.logprob(state, token, sampling.temperature))
            state = policy.context((token,), state)
            if token in sampling.stop_token_ids:
                return _completion(ids, logprobs, starts, "stop")
        is_whole = scripted is not None and len(ids) == len(scripted)
        return _completion(ids, logprobs, starts, "stop" if is_whole else "length")

    async def _may_sample(self) -> None:
        if self._pace is not None:
            await self._pace()
        if not self._running.is_set():
            await self._running.wait()


def _completion(
    ids: list[int], logprobs: list[float], starts: list[tuple[Version, int]], finish_reason: FinishReason
) -> Completion:
    ends = [start for _, start in starts[1:]] + [len(ids)]
    spans = tuple(VersionSpan(version, start, end) for (version, start), end in zip(starts, ends, strict=True))
    return Completion(tuple(ids), tuple(logprobs), spans if ids else (), finish_reason)


def compare(received: dict[str, str | None], manifest: WeightManifest) -> None:
    """Raise WeightsError naming the first tensor that is missing, different or unknown; `received`: digests by name."""
    for tensor in manifest.tensors:
        if tensor.name not in received:
            raise WeightsError(f"version {manifest.version}: tensor {tensor.name} never arrived: restart the engine")
        if received[tensor.name] not in (None, tensor.digest):
            raise WeightsError(f"version {manifest.version}: tensor {tensor.name} differs: restart the engine")
    unknown = sorted(received.keys() - {tensor.name for tensor in manifest.tensors})
    if unknown:
        raise WeightsError(
            f"version {manifest.version}: tensor {unknown[0]} is not in the manifest: restart the engine"
        )
