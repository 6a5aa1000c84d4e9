"""One episode: environment and model take turns until something ends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

from agentrl.env import EnvDriver
from agentrl.errors import EngineError
from agentrl.rollout.boundary import Ending, Phase, boundary, undecided
from agentrl.rollout.recorder import Recorder
from agentrl.rollout.renderer import Renderer
from agentrl.rollout.task_order import stable_hash
from agentrl.types import (
    Completion,
    EpisodeRequest,
    Message,
    Prompt,
    Sampling,
    Signal,
    StopReason,
    Timings,
    TokenIds,
    ToolSpec,
    Trajectory,
)


class Sampler(Protocol):
    """What an episode needs of the engines; implemented by `agentrl.engine.client.EngineClient`."""

    async def generate(
        self, prompt: Prompt, sampling: Sampling, deadline_s: float, key: Hashable | None = None
    ) -> Completion:
        """Sample one completion. Requests with the same `key` share a prefix, which an engine may cache."""


@dataclass(frozen=True, slots=True)
class EpisodeRuntime:
    """What the episodes of one worker share. The run's `seed` determines the task of each index."""

    make_driver: Callable[[int], EnvDriver]
    """Makes a driver for a limit of turns (0: the limit of the environment)."""
    renderer: Renderer
    engine: Sampler
    max_context: int
    seed: int = 0


class EpisodeRunner:
    """One attempt at one sample.

    `run` always returns a Trajectory, whose stop reason says what the env, the model or the engine did. Only a
    cancellation is raised. The env is torn down in every case.
    """

    def __init__(self, request: EpisodeRequest, runtime: EpisodeRuntime) -> None:
        self._request, self._runtime = request, runtime
        self._driver: EnvDriver | None = None
        self._recorder = Recorder()
        self._messages: list[Message] = []
        self._signals: tuple[Signal, ...] = ()
        self._success: Signal | None = None
        self._tools: tuple[ToolSpec, ...] = ()
        self._task_id, self._turns, self._is_begun = str(request.task_index), 0, False
        self._failed_teardown: Ending | None = None
        self._phase, self._since = Phase.SETUP, time.perf_counter()
        self._spent: dict[Phase, float] = {}

    async def run(self) -> Trajectory:
        """Run the episode: play, score, tear down."""
        try:
            with boundary(lambda: self._phase) as caught:
                caught.ending = await self._score(await self._play())
        finally:
            await self._close()
        assert caught.ending is not None, "the body or the boundary has set it"
        return self._trajectory(caught.ending)

    async def _play(self) -> Ending:
        try:
            async with asyncio.timeout(self._request.settings.episode_timeout_s) as clock:
                return Ending(await self._converse())
        except TimeoutError:
            if not clock.expired():
                raise
            error = f"{self._phase}: the episode ran longer than {self._request.settings.episode_timeout_s:g} s"
            return Ending(StopReason.DEADLINE, error)

    async def _converse(self) -> StopReason:
        driver, renderer = await self._begin(), self._runtime.renderer
        max_turns = driver.max_turns
        while (room := self._runtime.max_context - len(prompt := self._recorder.prompt)) > 0:
            completion = await self._generate(min(self._request.settings.max_tokens, room))
            self._recorder.action(completion, self._turns)
            self._enter(Phase.RENDER)
            reply = renderer.parse(prompt, completion.ids, self._tools, self._turns)
            self._messages.append(reply)
            self._enter(Phase.STEP)
            result = await driver.step(reply)
            self._messages.extend(result.messages)
            self._signals += result.signals
            self._turns += 1
            if result.done or self._turns >= max_turns:
                return self._ending(completion, room, result.done)
            self._extend(prompt, completion, reply, result.messages)
        return StopReason.CONTEXT_OVERFLOW

    async def _begin(self) -> EnvDriver:
        request = self._request
        self._driver = driver = self._runtime.make_driver(request.settings.max_turns)
        task = await driver.task(request.split, request.task_index, self._runtime.seed)
        self._task_id = task.id
        start = await driver.reset(
            task, seed=request.seed, member=request.sample.member, deadline_s=request.settings.episode_timeout_s
        )
        self._is_begun = True
        self._messages.extend(start.messages)
        self._tools = start.tools
        self._enter(Phase.RENDER)
        self._recorder.begin(self._runtime.renderer.first(self._messages, self._tools))
        return driver

    async def _generate(self, max_tokens: int) -> Completion:
        self._enter(Phase.GENERATE)
        request = self._request
        sampling = Sampling(
            max_tokens,
            request.settings.temperature,
            stable_hash(request.seed, request.split, request.task_index, request.sample.member, self._turns),
            self._runtime.renderer.stop_token_ids,
        )
        prompt, key = Prompt(self._recorder.prompt), (request.sample, request.attempt)
        completion = await self._runtime.engine.generate(prompt, sampling, request.settings.turn_timeout_s, key)
        if completion.finish_reason == "abort":
            raise EngineError("the engine aborted the request; the sample runs again")
        return completion

    def _extend(self, prompt: TokenIds, completion: Completion, reply: Message, new: tuple[Message, ...]) -> None:
        """Append the environment's messages; start a new sequence if the template rewrote the history."""
        self._enter(Phase.RENDER)
        renderer = self._runtime.renderer
        added = renderer.extend(prompt, completion.ids, reply, new, self._tools)
        if added is None:
            self._recorder.begin(renderer.first(self._messages, self._tools), self._turns)
        else:
            self._recorder.context(added, self._turns)

    def _ending(self, completion: Completion, room: int, is_done: bool) -> StopReason:
        """Return why the episode ended after this turn; a truncated answer takes precedence over the env's end."""
        if completion.finish_reason == "length":
            return StopReason.CONTEXT_OVERFLOW if room < self._request.settings.max_tokens else StopReason.MAX_TOKENS
        return StopReason.ENV_DONE if is_done else StopReason.MAX_TURNS

    async def _score(self, end: Ending) -> Ending:
        if self._driver is None or not self._is_begun:
            return end
        if end.stop_reason is StopReason.CONTEXT_OVERFLOW and self._turns == 0:
            prompt, context = len(self._recorder.prompt), self._runtime.max_context
            error = (
                f"the prompt has {prompt:,} tokens and model.max_context is {context:,}: no room is left for an answer"
            )
            return Ending(StopReason.CONTEXT_OVERFLOW, error)
        self._enter(Phase.SCORE)
        self._signals = await self._driver.finish(end.stop_reason)
        failure = undecided(self._signals)
        if self._request.settings.asks_success and self._signals and failure is None:
            self._success = await self._driver.success()
        return failure or end

    async def _close(self) -> None:
        if self._driver is None:
            return
        self._enter(Phase.TEARDOWN)
        with boundary(lambda: self._phase) as caught:
            await self._driver.close()
        if caught.ending is not None:
            self._failed_teardown = caught.ending
        self._enter(Phase.TEARDOWN)

    def _enter(self, phase: Phase) -> None:
        now = time.perf_counter()
        self._spent[self._phase] = self._spent.get(self._phase, 0.0) + now - self._since
        self._phase, self._since = phase, now

    def _trajectory(self, end: Ending) -> Trajectory:
        request, spent = self._request, self._spent
        why = end if end.error else self._failed_teardown or end
        return Trajectory(
            sample=request.sample,
            attempt=request.attempt,
            split=request.split,
            task_index=request.task_index,
            task_id=self._task_id,
            sequences=self._recorder.sequences(),
            messages=tuple(self._messages),
            signals=self._signals,
            stop_reason=end.stop_reason,
            temperature=request.settings.temperature,
            turns=self._turns,
            timings=Timings(
                total_s=sum(spent.values()),
                engine_s=spent.get(Phase.GENERATE, 0.0),
                env_s=sum(spent.get(phase, 0.0) for phase in (Phase.SETUP, Phase.STEP, Phase.TEARDOWN)),
                score_s=spent.get(Phase.SCORE, 0.0),
            ),
            error=why.error,
            traceback=why.traceback,
            success=self._success,
        )
