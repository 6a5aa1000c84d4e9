"""Env: what an author writes, and what the framework drives."""
# ruff: noqa: ARG002  (the defaults of the author's surface ignore what an author would use)

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from copy import deepcopy
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias, TypeVar

from agentrl.env.config import EnvConfig, load_config
from agentrl.env.context import Context, Episode, Reply, Start, StepResult, Turn
from agentrl.env.definition import check_definition
from agentrl.env.driver.resources import Resources, resources_of
from agentrl.env.driver.scoring import judge, judge_group, judge_success, passes, score
from agentrl.env.driver.tools import Toolbox
from agentrl.env.driver.toolcalls import answers
from agentrl.env.driver.user_code import UserCode
from agentrl.env.gymnasium import Face
from agentrl.env.limits import Limits
from agentrl.env.rewards import rewards_of
from agentrl.env.messages import short, spoken
from agentrl.env.tasks import IndexedTasks, Task, Tasks
from agentrl.env.tools import Tool
from agentrl.errors import EnvError
from agentrl.types import Message, Signal, StopReason

T = TypeVar("T")
MaybeAsync: TypeAlias = T | Awaitable[T]
Offer: TypeAlias = Tool | AbstractAsyncContextManager[Any] | object
"""A Tool, an object with `@tool` methods, or an async context manager whose value is some of these."""
Policy = Sequence[Message | str] | Callable[[list[Message]], Message | str]
"""Who plays the assistant: its turns in order, or a function of the messages so far."""


class Env(Face):
    """An environment: tasks, what is said, and what it is worth. One object per episode, cheap to make.

    Write `tasks` and `setup`, and `@reward` methods or `score`; `respond` for several turns; `@tool` methods for tools.
    Every method may be `async def` or plain. A plain one runs in a thread, where it may block; with `blocking = False`
    plain methods run on the event loop itself: for code of microseconds that never waits.
    """

    Config: ClassVar[type[EnvConfig]] = EnvConfig
    limits: Limits = Limits()
    blocking: ClassVar[bool] = True

    config: Any
    ctx: Context

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        check_definition(cls)

    def __init__(self, config: EnvConfig | None = None, *, split: str = "train", **options: Any) -> None:
        super().__init__(split)
        self.config = config if config is not None else load_config(type(self), options)
        self.resources: Resources | None = None
        self.code = UserCode(type(self).__name__, self.blocking)
        self._toolbox: Toolbox  # of the open episode
        self._is_open = self._is_set_up = False

    # ---- the author's surface

    def preflight(self) -> str:
        """What episodes need of this machine and found, in a sentence for the run's opening; "" says nothing.

        Asked once for a run, before anything heavy starts: raise what says what is missing and what to do.
        """
        return ""

    @abstractmethod
    def tasks(self, split: str) -> MaybeAsync[Tasks]:
        """The tasks of "train" or "test" (see `agentrl.env.tasks.Tasks` for what may be returned)."""

    def tools(self, ctx: Context) -> MaybeAsync[Iterable[Offer]]:
        """What the model is offered in this episode beyond the `@tool` methods; asked before `setup`.

        An async context manager is entered now and left after `teardown`, each within its deadline.
        """
        return ()

    @abstractmethod
    def setup(self, task: Task, ctx: Context) -> MaybeAsync[list[Message]]:
        """Begin an episode: the first messages."""

    def respond(self, turn: Turn, ctx: Context) -> MaybeAsync[Reply]:
        """Answer a turn. By default the episode goes on while the assistant calls tools, and ends when it does not."""
        return Reply.go_on() if turn.results else Reply.end()

    def score(self, ctx: Context) -> MaybeAsync[Sequence[Signal] | Signal | float]:
        """What the episode is worth. Where it is not written, the episode's `@reward` methods say."""
        return ()

    def success(self, ctx: Context) -> MaybeAsync[bool]:
        """Whether a finished episode solved its task: what pass@k of an evaluation counts.

        Asked in evaluations, once the episode is scored; `ctx.signals` has its rewards. Where it is not written, the
        rewards decide, those of the group included (see `agentrl.env.driver.scoring.passes`).
        """
        return passes(ctx.signals)

    def teardown(self, ctx: Context) -> MaybeAsync[None]:
        """Give back what `setup` took; runs once, however the episode ended."""

    def oracle(self, task: Task) -> Policy:
        """A policy that solves this task, as evidence that it can be solved."""
        raise EnvError(f"{type(self).__name__} ships no oracle; write oracle(task)")

    def canaries(self, task: Task) -> Mapping[str, Policy]:
        """Policies that must not score well, by what each of them tries."""
        return {}

    # ---- the driver's surface

    async def asize(self, split: str, seed: int = 0) -> int | None:
        """How many tasks a split has; None when they are endless."""
        return (await self._tasks(split, seed)).size

    async def atask(self, split: str, index: int, seed: int = 0) -> Task:
        """The task at `index`: the same for the same (config, split, seed, index), in every process."""
        return (await self._tasks(split, seed))[index]

    async def areset(self, task: Task, *, seed: int = 0, member: int = 0, deadline_s: float = 3600.0) -> Start:
        """Begin an episode of `task` as member `member` of its group, to end within `deadline_s` seconds."""
        await self.aclose()
        await self._share()
        self.ctx = ctx = Context.begin(task, seed, member, deadline_s)
        self._toolbox, self._is_open = Toolbox(self), True
        ctx.tools = self._toolbox.tools
        await self._toolbox.fill(None if type(self).tools is Env.tools else self.tools)
        self._is_set_up = True
        what = f"{type(self).__name__}.setup"
        messages = spoken(await self.code.call(self.setup, task, ctx, timeout_s=self.limits.setup_timeout_s), what)
        if not messages:
            raise EnvError(f"{what} returned no message; the model needs one to answer")
        ctx.messages.extend(messages)
        return Start(tuple(messages), tuple(deepcopy(tool.spec) for tool in ctx.tools.values()))

    async def astep(self, action: Message | str) -> StepResult:
        """Take the assistant's turn: run its tool calls in order, let `respond` answer, judge the turn."""
        self._check_open()
        ctx = self.ctx
        message = Message(role="assistant", content=action) if isinstance(action, str) else action
        ctx.messages.append(message)
        results = await answers(self, message.get("tool_calls") or ())
        turn = Turn(len(ctx.turns), message, results)
        ctx.turns.append(turn)
        ctx.messages.extend(results)
        reply = await self._respond(turn)
        ctx.messages.extend(reply.messages)
        signals = await judge(self, "turn", turn.index)
        ctx.signals.extend(signals)
        return StepResult((*results, *reply.messages), reply.done, signals)

    async def afinish(self, stop_reason: StopReason) -> tuple[Signal, ...]:
        """Every signal of the episode, those of its turns included; none where its end allows no score."""
        self._check_open()
        self.ctx.stop_reason = stop_reason
        if not (stop_reason.is_scored or (stop_reason is StopReason.DEADLINE and self.limits.is_timed)):
            return ()
        final = await (judge(self, "episode") if type(self).score is Env.score else score(self))
        self.ctx.signals.extend(final)
        return tuple(self.ctx.signals)

    async def asuccess(self) -> Signal | None:
        """What `success` says of the scored episode; None where it is not written and the rewards decide."""
        return None if type(self).success is Env.success else await judge_success(self)

    async def agroup(self, episodes: Sequence[Episode]) -> tuple[tuple[Signal, ...], ...]:
        """The group rewards: a tuple of signals for each finished episode of one group. Needs no `areset`."""
        await self._share()
        columns = [await judge_group(self, reward, episodes) for reward in rewards_of(type(self), "group")]
        return tuple(tuple(column[i] for column in columns) for i in range(len(episodes)))

    async def aclose(self) -> None:
        """Tear the episode down. Idempotent."""
        if not self._is_open:
            return
        is_set_up, self._is_open, self._is_set_up = self._is_set_up, False, False
        try:
            if is_set_up and type(self).teardown is not Env.teardown:
                await self.code.call(self.teardown, self.ctx, timeout_s=self.limits.teardown_timeout_s)
        finally:
            await self._toolbox.close()

    @classmethod
    def has_group_rewards(cls) -> bool:
        """True when `agroup` has something to say."""
        return bool(rewards_of(cls, "group"))

    # ---- inside

    def _check_open(self) -> None:
        if not self._is_open:
            raise EnvError(f"{type(self).__name__}: no episode is running; a reset begins one")

    async def _share(self) -> Resources:
        self.resources = resources_of(type(self), self.config)
        await self.resources.ready()
        return self.resources

    async def _tasks(self, split: str, seed: int) -> IndexedTasks:
        return await (await self._share()).tasks(split, seed)

    async def _respond(self, turn: Turn) -> Reply:
        if type(self).respond is Env.respond:
            return Reply.go_on() if turn.results else Reply.end()
        reply = await self.code.call(self.respond, turn, self.ctx, timeout_s=self.limits.turn_timeout_s)
        if not isinstance(reply, Reply):
            hint = "Reply.say(text), Reply.go_on() or Reply.end()"
            raise EnvError(f"{type(self).__name__}.respond returned {short(reply)}; return a Reply: {hint}")
        return replace(reply, messages=tuple(spoken(reply.messages, f"{type(self).__name__}.respond")))
