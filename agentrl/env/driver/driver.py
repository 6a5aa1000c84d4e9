"""EnvDriver: runs the episodes of one author's object."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

from agentrl.env.attributes import check_made
from agentrl.env.base import Env
from agentrl.env.context import Context, Episode, Reply, Start, StepResult, Turn
from agentrl.env.driver.resources import Resources, resources_of
from agentrl.env.driver.scoring import Scorer
from agentrl.env.driver.tools import Toolbox
from agentrl.env.driver.user_code import UserCode
from agentrl.env.messages import checked_messages, short
from agentrl.env.rewards import rewards_of
from agentrl.env.tasks import IndexedTasks, Task
from agentrl.errors import ConfigError, EnvError
from agentrl.types import Message, Signal, StopReason


class EnvDriver:
    """Drives an environment object: one episode at a time, from `reset` to `close`.

    Every call into the author's code has a deadline. `max_turns` is the run's; 0 keeps the limit of the environment.
    """

    def __init__(self, env: Env, max_turns: int = 0) -> None:
        if not isinstance(env, Env):
            name = getattr(env, "__name__", "")
            raise ConfigError(f"{name or short(env)} is not an object of an environment; pass {name or 'MyEnv'}()")
        check_made(env)
        self.env = env
        self._max_turns = max_turns
        self._code = UserCode.of(env)
        self._scorer = Scorer(env, self._code)
        self._toolbox: Toolbox  # of the open episode
        self._is_open = self._is_set_up = False

    @property
    def max_turns(self) -> int:
        """Turns that an episode may have."""
        return self._max_turns or self.env.limits.max_turns

    @property
    def has_group_rewards(self) -> bool:
        """True if `score_group` returns any signal."""
        return bool(rewards_of(type(self.env), "group"))

    @property
    def ctx(self) -> Context:
        """The context of the current episode."""
        return self.env.ctx

    async def size(self, split: str, seed: int = 0) -> int | None:
        """Number of tasks of a split; None if they are endless."""
        return (await self._tasks(split, seed)).size

    async def task(self, split: str, index: int, seed: int = 0) -> Task:
        """Return the task at `index`: the same for the same (config, split, seed, index) in every process."""
        return (await self._tasks(split, seed))[index]

    async def reset(self, task: Task, *, seed: int = 0, member: int = 0, deadline_s: float = 3600.0) -> Start:
        """Begin an episode of `task` as member `member` of its group; it should end within `deadline_s` seconds."""
        await self.close()
        await self._share()
        env = self.env
        vars(env)["ctx"] = ctx = Context.begin(task, seed, member, deadline_s)
        self._toolbox, self._is_open = Toolbox(env, self._code), True
        ctx.tools = self._toolbox.tools
        await self._toolbox.fill()
        self._is_set_up = True
        name = f"{type(env).__name__}.setup"
        returned = await self._code.call(env.setup, task, ctx, timeout_s=env.limits.setup_timeout_s)
        messages = checked_messages(returned, name)
        if not messages:
            raise EnvError(f"{name} returned no message; the model needs one to answer")
        ctx.messages = tuple(messages)
        return Start(tuple(messages), tuple(deepcopy(tool.spec) for tool in ctx.tools.values()))

    async def step(self, turn: Message | str) -> StepResult:
        """Take the assistant's turn: run its tool calls in order, call `respond`, score the turn."""
        self._check_open()
        ctx = self.env.ctx
        message = Message(role="assistant", content=turn) if isinstance(turn, str) else turn
        ctx.messages += (message,)
        results = await self._toolbox.answers(message.get("tool_calls") or ())
        taken = Turn(len(ctx.turns), message, results)
        ctx.turns.append(taken)
        ctx.messages += results
        reply = await self._respond(taken)
        ctx.messages += reply.messages
        signals = await self._scorer.turn(taken.index)
        ctx.signals.extend(signals)
        return StepResult((*results, *reply.messages), bool(reply.done), signals)

    async def finish(self, stop_reason: StopReason) -> tuple[Signal, ...]:
        """Score the episode. Returns all its signals, those of its turns included; none if its end is not scored."""
        self._check_open()
        ctx = self.env.ctx
        ctx.stop_reason = stop_reason
        if not (stop_reason.is_scored or (stop_reason is StopReason.DEADLINE and self.env.limits.is_timed)):
            return ()
        ctx.signals.extend(await self._scorer.episode())
        return tuple(ctx.signals)

    async def success(self) -> Signal | None:
        """Result of the environment's own `success` for the scored episode; None if the rewards decide instead."""
        return None if type(self.env).success is Env.success else await self._scorer.success()

    async def score_group(self, episodes: Sequence[Episode]) -> tuple[tuple[Signal, ...], ...]:
        """Return the group rewards: a tuple of signals for each finished episode of one group. Needs no `reset`."""
        await self._share()
        return await self._scorer.group(episodes)

    async def close(self) -> None:
        """Tear the episode down. Idempotent."""
        if not self._is_open:
            return
        env, is_set_up = self.env, self._is_set_up
        self._is_open = self._is_set_up = False
        try:
            if is_set_up and type(env).teardown is not Env.teardown:
                await self._code.call(env.teardown, env.ctx, timeout_s=env.limits.teardown_timeout_s)
        finally:
            await self._toolbox.close()

    def _check_open(self) -> None:
        if not self._is_open:
            raise EnvError(f"{type(self.env).__name__}: no episode is running; call reset first")

    async def _share(self) -> Resources:
        """Make the `@shared` values, and set them on the author's object."""
        resources = resources_of(self.env)
        await resources.ready()
        vars(self.env).update(resources.values)
        return resources

    async def _tasks(self, split: str, seed: int) -> IndexedTasks:
        return await (await self._share()).tasks(split, seed)

    async def _respond(self, turn: Turn) -> Reply:
        env = self.env
        if type(env).respond is Env.respond:  # called as it is, without the thread of a plain method
            return Reply.go_on() if turn.results else Reply.end()
        reply = await self._code.call(env.respond, turn, env.ctx, timeout_s=env.limits.turn_timeout_s)
        name = f"{type(env).__name__}.respond"
        if not isinstance(reply, Reply):
            raise EnvError(
                f"{name} returned {short(reply)}; return a Reply: Reply.say(text), Reply.go_on() or Reply.end()"
            )
        messages = checked_messages(reply.messages, name)
        if any(message["role"] == "assistant" for message in messages):
            raise EnvError(
                f"{name} returned a message with the role 'assistant'; after setup only the model speaks as the "
                "assistant: give the message the role 'user', or 'tool' for the result of a tool"
            )
        return replace(reply, messages=tuple(messages))
