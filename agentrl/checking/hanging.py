"""Whether an episode ends when the model, a tool or a reward never answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

from agentrl.checking.attempts import attempt, calling
from agentrl.checking.check import FailedError, SkippedError, Subject
from agentrl.engine.scripted import Hang
from agentrl.env.arguments import as_object
from agentrl.env.base import Env, Policy
from agentrl.env.config import Limits
from agentrl.env.context import Context
from agentrl.env.driver.driver import EnvDriver
from agentrl.env.driver.resources import close_shared
from agentrl.env.policies import solution_of, turn_of
from agentrl.env.rewards import reward, rewards_of
from agentrl.env.tasks import Task
from agentrl.env.testing.cancellation import described
from agentrl.env.testing.episodes import sample_tasks
from agentrl.types import EpisodeSettings, Message, Scope, Trajectory

LIMIT_S = 0.3
"""Time limit of a call that hangs."""
PATIENCE_S = 20.0
"""Time in which the rest of the episode ends."""
SETTLE_S = 2.0
"""Time for tasks that have been cancelled."""
BRIEF = EpisodeSettings(1.0, 65_536, 0, 2.0, LIMIT_S)
CALM = EpisodeSettings(1.0, 65_536, 0, 60.0, 30.0)


async def agent(subject: Subject) -> str:
    """Check that an episode ends whose model never answers, at its first turn and after the oracle's first."""
    task = (await sample_tasks(subject.make(), 1))[0]
    first = await _ends(subject, task, lambda _: Hang(), BRIEF, "the model never answers")
    _check_unpaid(first)
    solution = solution_of(subject.make(), task)
    if subject.make().limits.max_turns > 1 and solution is not None:
        await _ends(subject, task, _then_hang(solution), BRIEF, "the model never answers its second turn")
    return f"the stop reason is {first.stop_reason}"


def _then_hang(policy: Policy) -> Any:
    turns = 0

    def turn(messages: list[Message]) -> Any:
        nonlocal turns
        turns += 1
        return turn_of(policy, 0, messages) if turns == 1 else Hang()

    return turn


def _check_unpaid(played: Trajectory) -> None:
    if played.signals and not played.stop_reason.is_scored and played.is_valid and played.turns == 0:
        raise FailedError(f"an episode without an answer earns {played.reward:g} ({played.stop_reason})")


async def tool(subject: Subject) -> str:
    """Check that an episode ends whose tools never answer."""
    task, names = (await sample_tasks(subject.make(), 1))[0], set[str]()

    def setup(self: Env, task: Task, ctx: Context) -> Any:
        names.update(ctx.tools)
        for name, offered in ctx.tools.items():
            ctx.tools[name] = replace(offered, run=_never, read=as_object, blame=None)
        return subject.env_class.setup(self, task, ctx)

    hanging = changed(subject, {"setup": setup}, tool_timeout_s=LIMIT_S)
    await _ends(
        hanging, task, lambda _: calling(*((name, {}) for name in sorted(names))), CALM, "its tools never answer"
    )
    if not names:
        is_agent = EnvDriver(subject.make()).is_agent
        raise SkippedError("its agent calls tools itself" if is_agent else "the environment offers no tools")
    return f"tools: {', '.join(sorted(names))}"


async def scorer(subject: Subject) -> str:
    """Check that an episode ends, without a reward, whose scoring never answers."""
    task = (await sample_tasks(subject.make(), 1))[0]
    hanging = changed(subject, _hanging_rewards(subject.env_class), score_timeout_s=LIMIT_S)
    played = await _ends(hanging, task, lambda _: "", CALM, "its scoring never answers")
    if played.is_valid:
        raise FailedError(f"an episode that was never scored earns {played.reward:g}")
    return f"the stop reason is {played.stop_reason}"


def _hanging_rewards(env_class: type[Env]) -> dict[str, Any]:
    """Return methods that never answer in place of `score` and of the rewards that one episode computes."""
    if env_class.score is not Env.score:
        return {"score": _scores_never}
    scopes: tuple[Scope, ...] = get_args(Scope)
    found = [each for scope in scopes if scope != "group" for each in rewards_of(env_class, scope)]
    return {each.name: reward(weight=each.weight, scope=each.scope)(_never_for(each.name)) for each in found}


def _never_for(name: str) -> Callable[..., Any]:
    async def never(self: Env, ctx: Context) -> float:  # noqa: ARG001 (the signature of a reward)
        return float(await _never())

    never.__name__ = name
    return never


async def _scores_never(self: Env, ctx: Context) -> float:  # noqa: ARG001
    return float(await _never())


async def _never(**_: Any) -> str:
    await asyncio.Event().wait()
    return ""


def changed(subject: Subject, methods: dict[str, Any], **limits: float) -> Subject:
    """Return the environment with other methods and with limits that are at most these."""

    def start(self: Env, *args: Any, **options: Any) -> None:
        subject.env_class.__init__(self, *args, **options)
        self.limits = _capped(self.limits, limits)

    changed = type(subject.env_class.__name__, (subject.env_class,), {"__init__": start, **methods})
    return replace(subject, env_class=changed)


def _capped(known: Limits, limits: dict[str, float]) -> Limits:
    return replace(known, **{name: min(getattr(known, name), most) for name, most in limits.items()})


async def _ends(subject: Subject, task: Task, policy: Any, settings: EpisodeSettings, what: str) -> Trajectory:
    """Return the episode. Raises FailedError if it does not end in time, or leaves tasks behind."""
    await sample_tasks(subject.make(), 1)  # what is shared is made, which may take longer than an episode
    before = asyncio.all_tasks()
    try:
        async with asyncio.timeout(PATIENCE_S):
            played = await attempt(subject, task, policy, settings)
    except TimeoutError as error:
        raise FailedError(f"an episode does not end within {PATIENCE_S:g} s when {what}") from error
    await close_shared()
    left = asyncio.all_tasks() - before
    if left and (left := (await asyncio.wait(left, timeout=SETTLE_S))[1]):
        raise FailedError(f"tasks are left when {what}: {described(left)}")
    return played
