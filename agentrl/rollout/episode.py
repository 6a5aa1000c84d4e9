"""One episode: environment and model take turns until something ends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from agentrl.endpoint import Endpoint, Responder, Tokens
from agentrl.env import Episode, Start, StepResult, Task
from agentrl.errors import EngineError
from agentrl.roles import Asked
from agentrl.rollout.boundary import Ending, Phase, boundary, undecided
from agentrl.rollout.recorder import Branch, Recorder
from agentrl.rollout.renderer import Renderer
from agentrl.rollout.session import Budget, Session
from agentrl.rollout.task_order import stable_hash
from agentrl.types import (
    Completion,
    EpisodeRequest,
    Exchange,
    Message,
    Prompt,
    RoleUse,
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


async def sampled(
    engine: Sampler, prompt: Prompt, sampling: Sampling, deadline_s: float, key: Hashable | None = None
) -> Completion:
    """Return a whole completion. Raises EngineError if the engine aborted it: its text may end anywhere."""
    completion = await engine.generate(prompt, sampling, deadline_s, key)
    if completion.finish_reason == "abort":
        raise EngineError("the engine aborted the request")
    return completion


class Driver(Protocol):
    """What an episode needs of its environment: `EnvDriver` in this process, `RemoteDriver` for another one."""

    @property
    def name(self) -> str:
        """The name of the author's class."""

    @property
    def max_turns(self) -> int:
        """Turns that an episode may have."""

    @property
    def is_agent(self) -> bool:
        """True if the author's agent drives the episode."""

    @property
    def roles(self) -> Mapping[str, Asked]:
        """The roles of the current episode."""

    @property
    def role_uses(self) -> dict[str, RoleUse]:
        """What was asked of each role."""

    async def size(self, split: str, seed: int = 0) -> int | None:
        """Number of tasks of a split; None if they are endless."""

    async def task(self, split: str, index: int, seed: int = 0) -> Task:
        """Return the task at `index`."""

    async def reset(self, task: Task, *, seed: int = 0, member: int = 0, deadline_s: float = 3600.0) -> Start:
        """Begin an episode in step mode; return its first messages."""

    async def begin(self, task: Task, *, seed: int = 0, member: int = 0, deadline_s: float = 3600.0) -> None:
        """Begin an episode in agent mode."""

    async def step(self, turn: Message | str) -> StepResult:
        """Take the assistant's turn."""

    async def accompany(self, endpoint: Endpoint, responder: Responder, tokens: Tokens) -> None:
        """Let the agent play; `responder` answers its calls."""

    async def take(self, messages: Sequence[Message], turn: Message, agent: str = "") -> tuple[Signal, ...]:
        """Take a turn that the agent asked for after new `messages`, and score it."""

    async def finish(self, stop_reason: StopReason) -> tuple[Signal, ...]:
        """Score the episode."""

    async def success(self) -> Signal | None:
        """Result of the environment's own `success`; None if the rewards decide instead."""

    async def score_group(self, episodes: Sequence[Episode]) -> tuple[tuple[Signal, ...], ...]:
        """Return the group rewards of each finished episode of one group."""

    async def close(self) -> None:
        """Tear the episode down. Idempotent."""


@dataclass(frozen=True, slots=True)
class EpisodeRuntime:
    """What the episodes of one worker share. The run's `seed` determines the task of each index."""

    make_driver: Callable[[int], Driver]
    """Makes a driver for a limit of turns (0: the limit of the environment)."""
    renderer: Renderer
    engine: Sampler
    max_context: int
    endpoint: Endpoint
    seed: int = 0


class EpisodeRunner:
    """One attempt at one sample.

    `run` always returns a Trajectory, whose stop reason says what the env, the model or the engine did. Only a
    cancellation is raised. The env is torn down in every case.
    """

    def __init__(self, request: EpisodeRequest, runtime: EpisodeRuntime) -> None:
        self._request, self._runtime = request, runtime
        self._driver: Driver | None = None
        self._recorder = Recorder()
        self._messages: list[Message] = []
        self._exchanges: list[Exchange] = []
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
                driver = await self._begin()
                return await (self._accompany(driver) if driver.is_agent else self._converse(driver))
        except TimeoutError:
            if not clock.expired():
                raise
            error = f"{self._phase}: the episode ran longer than {self._request.settings.episode_timeout_s:g} s"
            return Ending(StopReason.DEADLINE, error)

    async def _converse(self, driver: Driver) -> Ending:
        """Play in step mode: the environment answers every turn."""
        renderer, max_turns = self._runtime.renderer, driver.max_turns
        self._enter(Phase.RENDER)
        branch = self._recorder.begin(renderer.first(self._messages, self._tools))
        while (room := self._runtime.max_context - len(prompt := branch.prompt)) > 0:
            completion = await self._generate(prompt, min(self._request.settings.max_tokens, room), (), self._turns)
            branch.action(completion, self._turns)
            self._enter(Phase.RENDER)
            reply = renderer.parse(prompt, completion.ids, self._tools, self._turns)
            self._messages.append(reply)
            self._exchanges.append(self._next())
            self._enter(Phase.STEP)
            result = await driver.step(reply)
            self._messages.extend(result.messages)
            self._signals += result.signals
            self._turns += 1
            if result.done or self._turns >= max_turns:
                return Ending(self._stop_reason(completion, room, result.done))
            branch = self._extended(branch, prompt, completion, reply, result.messages)
        if self._turns:
            return Ending(StopReason.CONTEXT_OVERFLOW)
        length, most = len(branch.prompt), self._runtime.max_context
        error = f"the prompt has {length:,} tokens and model.max_context is {most:,}: no room is left for an answer"
        return Ending(StopReason.CONTEXT_OVERFLOW, error)

    async def _accompany(self, driver: Driver) -> Ending:
        """Play in agent mode: the author's agent calls the endpoint, several times at once if it likes."""
        in_flight = 0

        async def generate(prompt: TokenIds, max_tokens: int, stop: tuple[str, ...], number: int) -> Completion:
            nonlocal in_flight
            in_flight += 1
            try:
                return await self._generate(prompt, max_tokens, stop, number)
            finally:
                in_flight -= 1
                self._enter(Phase.GENERATE if in_flight else Phase.STEP)

        async def take(new: tuple[Message, ...], turn: Message, agent: str, parent: int | None) -> None:
            start = len(self._messages)
            self._messages.extend((*new, turn))
            self._exchanges.append(Exchange(start, len(self._messages), parent))
            self._turns += 1
            signals = await driver.take(new, turn, agent)
            self._signals += signals

        runtime = self._runtime
        budget = Budget(driver.max_turns, self._request.settings.max_tokens, runtime.max_context)
        session = Session(runtime.renderer, self._recorder, budget, generate, take, driver.roles)
        self._enter(Phase.STEP)
        ending = await session.accompany(driver.accompany(runtime.endpoint, session, self._tokens(session)))
        if ending is None:
            self._enter(Phase.GENERATE)
            raise session.failure or EngineError("the engine failed")
        if self._turns == 0 and not ending.error:
            return replace(ending, error=f"{driver.name}.play ended without a call to the model: await one of `model`")
        return ending

    def _tokens(self, session: Session) -> Tokens:
        runtime, settings = self._runtime, self._request.settings
        return Tokens(
            tokenizer=runtime.renderer.tokenizer,
            generate=session.generate,
            max_context=runtime.max_context,
            max_tokens=settings.max_tokens,
            stop_token_ids=runtime.renderer.stop_token_ids,
            temperature=settings.temperature,
        )

    async def _begin(self) -> Driver:
        request = self._request
        self._driver = driver = self._runtime.make_driver(request.settings.max_turns)
        task = await driver.task(request.split, request.task_index, self._runtime.seed)
        self._task_id = task.id
        member, deadline_s = request.sample.member, request.settings.episode_timeout_s
        if driver.is_agent:
            await driver.begin(task, seed=request.seed, member=member, deadline_s=deadline_s)
        else:
            start = await driver.reset(task, seed=request.seed, member=member, deadline_s=deadline_s)
            self._messages.extend(start.messages)
            self._tools = start.tools
        self._is_begun = True
        return driver

    async def _generate(self, prompt: TokenIds, max_tokens: int, stop: tuple[str, ...], number: int) -> Completion:
        """Sample the episode's completion `number`."""
        self._enter(Phase.GENERATE)
        request = self._request
        sampling = Sampling(
            max_tokens,
            request.settings.temperature,
            stable_hash(request.seed, request.split, request.task_index, request.sample.member, number),
            self._runtime.renderer.stop_token_ids,
            stop,
        )
        key = (request.sample, request.attempt)
        return await sampled(self._runtime.engine, Prompt(prompt), sampling, request.settings.turn_timeout_s, key)

    def _next(self) -> Exchange:
        """Return where the turn is that ends with the last message."""
        turn = len(self._exchanges)
        return Exchange(self._exchanges[-1].stop if turn else 0, len(self._messages), turn - 1 if turn else None)

    def _extended(
        self, branch: Branch, prompt: TokenIds, completion: Completion, reply: Message, new: tuple[Message, ...]
    ) -> Branch:
        """Append the environment's messages; start a new branch if the template rewrote the history."""
        self._enter(Phase.RENDER)
        renderer = self._runtime.renderer
        added = renderer.extend(prompt, completion.ids, reply, new, self._tools)
        if added is None:
            return self._recorder.begin(renderer.first(self._messages, self._tools), self._turns)
        branch.context(added, self._turns)
        return branch

    def _stop_reason(self, completion: Completion, room: int, is_done: bool) -> StopReason:
        """Return why the episode ended after this turn; a truncated answer takes precedence over the env's end."""
        if completion.finish_reason == "length":
            return StopReason.CONTEXT_OVERFLOW if room < self._request.settings.max_tokens else StopReason.MAX_TOKENS
        return StopReason.ENV_DONE if is_done else StopReason.MAX_TURNS

    async def _score(self, end: Ending) -> Ending:
        is_unanswered = self._turns == 0 and end.stop_reason.is_scored
        if self._driver is None or not self._is_begun or is_unanswered:
            return end
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
            env=request.env,
            roles=self._driver.role_uses if self._driver else {},
            exchanges=tuple(self._exchanges[: self._turns]),
        )
