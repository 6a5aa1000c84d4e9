"""EnvDriver: runs the episodes of one author's object."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from types import MappingProxyType

from agentrl.endpoint import Endpoint, Model, Responder, Tokens
from agentrl.env.agent import AgentEnv
from agentrl.env.attributes import check_made
from agentrl.env.base import Env
from agentrl.env.context import Context, Episode, Reply, Start, StepResult, Turn
from agentrl.env.driver.casting import Cast
from agentrl.env.driver.resources import Resources, resources_of
from agentrl.env.driver.scoring import Scorer
from agentrl.env.driver.stepping import Pending, Stepping
from agentrl.env.driver.threads import PLAYS, STAND_INS
from agentrl.env.driver.tools import Toolbox
from agentrl.env.driver.user_code import GRACE_S, UserCode
from agentrl.env.messages import checked_messages, short
from agentrl.env.rewards import rewards_of
from agentrl.env.tasks import IndexedTasks, Task
from agentrl.errors import ConfigError, EnvError
from agentrl.roles import Casting, Role
from agentrl.types import Message, RoleUse, Signal, StopReason
from agentrl.types.plain import as_json


class EnvDriver:
    """Drives an environment object: one episode at a time, from `reset` to `close`.

    Every call into the author's code has a deadline. `max_turns` is the run's; 0 keeps the limit of the environment.
    `castings` are the roles that models play; stand-ins of the environment play the others.
    """

    def __init__(self, env: Env, max_turns: int = 0, castings: Mapping[str, Casting] = MappingProxyType({})) -> None:
        if not isinstance(env, Env):
            name = getattr(env, "__name__", "")
            raise ConfigError(f"{name or short(env)} is not an object of an environment; pass {name or 'MyEnv'}()")
        check_made(env)
        self.env = env
        self._max_turns = max_turns
        self._code = UserCode.of(env)
        self._agent_code = UserCode.of(env, PLAYS)
        self._cast = Cast(env, UserCode.of(env, STAND_INS), castings)
        self._scorer = Scorer(env, self._code, self._cast.patience_s)
        self._toolbox: Toolbox  # of the open episode
        self._is_open = self._is_set_up = False
        self._stepping: Stepping | None = None
        self._call: Pending | None = None

    @property
    def name(self) -> str:
        """The name of the author's class."""
        return type(self.env).__name__

    @property
    def max_turns(self) -> int:
        """Turns that an episode may have."""
        return self._max_turns or self.env.limits.max_turns

    @property
    def is_agent(self) -> bool:
        """True if the author's agent drives the episode."""
        return isinstance(self.env, AgentEnv)

    @property
    def done_reason(self) -> StopReason:
        """Why an episode ends that neither a limit nor an error ends."""
        return StopReason.AGENT_DONE if self.is_agent else StopReason.ENV_DONE

    @property
    def has_group_rewards(self) -> bool:
        """True if `score_group` returns any signal."""
        return bool(rewards_of(type(self.env), "group"))

    @property
    def roles(self) -> Mapping[str, Role]:
        """The roles of the current episode."""
        return self._cast.roles

    @property
    def role_uses(self) -> dict[str, RoleUse]:
        """What was asked of each role in the current episode, or for the rewards of its group."""
        return self._cast.uses

    @property
    def ctx(self) -> Context:
        """The context of the current episode."""
        return self.env.ctx

    async def size(self, split: str, seed: int = 0) -> int | None:
        """Number of tasks of a split; None if they are endless."""
        return (await self._tasks(split, seed)).size

    async def task(self, split: str, index: int, seed: int = 0) -> Task:
        """Return the task at `index`: the same for the same (config, split, seed, index) in every process."""
        tasks = await self._tasks(split, seed)
        if not tasks.is_replayed:
            return tasks[index]
        limit_s = self.env.limits.load_timeout_s
        beside = replace(self._code, blocking=True)
        task: Task = await beside.call(tasks.__getitem__, index, timeout_s=limit_s, name="tasks")
        return task

    async def reset(self, task: Task, *, seed: int = 0, member: int = 0, deadline_s: float = 3600.0) -> Start:
        """Begin an episode of `task` as member `member` of its group, and return its first messages.

        It should end within `deadline_s` seconds. For an AgentEnv they are those of the agent's first call.
        """
        await self.begin(task, seed=seed, member=member, deadline_s=deadline_s)
        ctx = self.env.ctx
        if self.is_agent:
            self._stepping = Stepping(self.play, self.roles)
            self._call = await self._stepping.first()
            if self._call is None:
                raise EnvError(
                    f"{type(self.env).__name__}.play ended without a call to the model: await one of `model`"
                )
            ctx.messages = self._call.new
            return Start(ctx.messages, self._call.ask.tools)
        name = f"{type(self.env).__name__}.setup"
        returned = await self._code.call(
            self.env.setup, task, ctx, timeout_s=self.env.limits.setup_timeout_s + self._cast.patience_s
        )
        messages = checked_messages(returned, name)
        if not messages:
            raise EnvError(f"{name} returned no message; the model needs one to answer")
        ctx.messages = tuple(messages)
        return Start(ctx.messages, tuple(deepcopy(tool.spec) for tool in ctx.tools.values()))

    async def begin(self, task: Task, *, seed: int = 0, member: int = 0, deadline_s: float = 3600.0) -> None:
        """Open an episode and its tools, without a message yet."""
        await self.close()
        await self._share()
        env = self.env
        vars(env)["ctx"] = ctx = Context.begin(task, seed, member, deadline_s)
        self._cast.begin(f"{seed}/{task.split}/{task.index}/{member}")
        self._toolbox, self._is_open = Toolbox(env, self._code), True
        ctx.tools = self._toolbox.tools
        await self._toolbox.fill()
        self._is_set_up = True

    async def step(self, turn: Message | str) -> StepResult:
        """Take the assistant's turn: run its tool calls in order, call `respond`, score the turn."""
        self._check_open()
        ctx = self.env.ctx
        message = Message(role="assistant", content=turn) if isinstance(turn, str) else turn
        if self._call is not None:
            return await self._step_agent(self._call, message)
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

    async def play(self, model: Model) -> None:
        """Let the agent of an AgentEnv play the episode; what it returned is `ctx.result`."""
        self._check_open()
        env = self.env
        assert isinstance(env, AgentEnv), "the caller has asked `is_agent`"
        ctx = env.ctx
        limit_s = ctx.time_left_s + GRACE_S
        ctx.result = await self._agent_code.call(env.play, ctx.task, ctx, model, timeout_s=limit_s)

    async def accompany(self, endpoint: Endpoint, responder: Responder, tokens: Tokens) -> None:
        """Let the agent of an AgentEnv play; `responder` answers its calls to the endpoint."""
        async with endpoint.open(responder, tokens) as model:
            await self.play(model)

    async def take(self, messages: Sequence[Message], turn: Message, agent: str = "") -> tuple[Signal, ...]:
        """Take a turn that the agent of an AgentEnv asked for after new `messages`, and score it."""
        self._check_open()
        ctx = self.env.ctx
        ctx.messages += (*messages, turn)
        taken = Turn(len(ctx.turns), turn, agent=agent)
        ctx.turns.append(taken)
        signals = await self._scorer.turn(taken.index)
        ctx.signals.extend(signals)
        return signals

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
        """Return the group rewards: a tuple of signals for each finished episode of one group. Needs no `reset`.

        They read evidence as JSON gives it back: it may come from another process, or from the files of a run.
        """
        await self._share()
        episodes = [replace(episode, signals=tuple(map(_as_sent, episode.signals))) for episode in episodes]
        self._cast.begin("/".join(f"group/{episode.task.split}/{episode.task.index}" for episode in episodes[:1]))
        return await self._scorer.group(episodes)

    async def close(self) -> None:
        """Tear the episode down. Idempotent."""
        if not self._is_open:
            return
        env, is_set_up = self.env, self._is_set_up
        self._is_open = self._is_set_up = False
        stepping, self._stepping, self._call = self._stepping, None, None
        try:
            if stepping is not None:
                await stepping.close()
            if is_set_up and type(env).teardown is not Env.teardown:
                await self._code.call(env.teardown, env.ctx, timeout_s=env.limits.teardown_timeout_s)
        finally:
            await self._toolbox.close()

    async def _step_agent(self, call: Pending, turn: Message) -> StepResult:
        """Answer the agent's call and run the agent to its next one."""
        assert self._stepping is not None, "the agent runs"
        answer = self._stepping.answer_of(turn, call.ask)
        signals = await self.take((), answer.message, call.ask.agent)
        self._call = following = await self._stepping.reply(call, answer)
        new = following.new if following else ()
        self.env.ctx.messages += new
        return StepResult(new, following is None, signals)

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
        limit_s = env.limits.turn_timeout_s + self._cast.patience_s
        reply = await self._code.call(env.respond, turn, env.ctx, timeout_s=limit_s)
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


def _as_sent(signal: Signal) -> Signal:
    """Return a signal with its evidence as another process reads it."""
    return signal if signal.evidence is None else replace(signal, evidence=json.loads(as_json(signal.evidence)))
