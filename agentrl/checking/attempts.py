"""Episodes that a check plays: any text as the model's, through the code that training runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.checking.check import TASKS, FailedError, SkippedError, Subject, UncheckedError
from agentrl.env.base import Env, Policy
from agentrl.env.driver.driver import EnvDriver
from agentrl.env.dry_run.completeness import has_rewards
from agentrl.env.policies import DEFAULT_REWARD, player_of, solution_reward
from agentrl.env.rewards import passes
from agentrl.env.tasks import Task
from agentrl.env.testing.episodes import play_each, play_signals, sample_tasks
from agentrl.env.testing.rehearsal import Rehearsal
from agentrl.types import (
    EpisodeRequest,
    EpisodeSettings,
    Message,
    SampleId,
    Signal,
    StopReason,
    ToolCall,
    ToolSpec,
    Trajectory,
)

Arguments = dict[str, Any]
Call = tuple[str, Arguments]
"""The name and the arguments of a tool call."""
ROUNDING = 1e-9
CHANCE = 0.4
"""Most that a text may earn on average, where a solution earns 1, if it can be right by chance.

Among three choices it is right in a third of the tasks.
"""
SETTINGS = EpisodeSettings(1.0, 65_536, 0, 60.0, 60.0, asks_success=True)
MAX_CONTEXT = 1 << 20
IN_TURN_S = 20.0
"""Time for the episodes that a check has to play one after another."""
TICK_S = 1e-6
"""Least duration of what is measured: an environment may stop the clock."""
AT_A_TASK = 8
"""About how many episodes the evidence of an environment is, at one task of each split."""

Answers = Callable[[Env, Task, list[Task]], Policy]
"""Chooses the model's turns for a task; the list contains all sampled tasks."""


@dataclass(frozen=True)
class Earned:
    """What an attempt at a task earns, and whether that counts as solved.

    Where it is known what a solution earns, an attempt that earns nothing has solved nothing, whatever `success` says:
    both players of a game keep to the rules, but neither is better than the other.
    """

    task: Task
    reward: float
    is_solved: bool


def check_paid(subject: Subject) -> None:
    """Raise SkippedError for an environment that judges no answer, because reward models do."""
    if not has_rewards(subject.env_class) and subject.env_class.success is Env.success:
        raise SkippedError(f"{subject.env_class.__name__} has neither a reward nor a success of its own")


async def attempt(subject: Subject, task: Task, policy: Policy, settings: EpisodeSettings = SETTINGS) -> Trajectory:
    """Play one episode as a rollout worker does, with a scripted model that writes text."""
    request = EpisodeRequest(SampleId(0, 0), 0, task.split, task.index, 0, settings)
    return await Rehearsal(subject.make(), policy, None, MAX_CONTEXT).run(request)


async def earned(subject: Subject, task: Task, policy: Policy, what: str) -> Earned:
    """Return what an attempt earns. Raises FailedError if it has no valid reward, which drops it from training,
    UncheckedError if it does not end in the time of a check, and SkippedError if nothing judges it.
    """
    check_paid(subject)
    return await _earned(subject, task, policy, what)


async def _earned(subject: Subject, task: Task, policy: Policy, what: str) -> Earned:
    played = await attempt(subject, task, policy)
    faults = faults_of(played.judgements)
    if not (played.error or faults):
        pays = solution_reward(subject.make()) is None or played.reward > ROUNDING
        return Earned(task, played.reward, pays and is_solved(played))
    if played.stop_reason is StopReason.DEADLINE:
        raise UncheckedError(
            f"{what} at task {task.id!r} ({task.split}) did not end within {SETTINGS.episode_timeout_s:g} s: "
            "the machine or the environment is slow"
        )
    why = "; ".join([*([played.error] if played.error else []), *faults])
    raise FailedError(f"{what} at task {task.id!r} ({task.split}) has no reward ({played.stop_reason}): {why}")


async def ordinary(subject: Subject) -> float:
    """Play the oracle, or noise where there is none, at one task; return its seconds. Raises if it ends badly."""
    env = subject.make()
    task = (await sample_tasks(env, 1))[0]
    began = time.monotonic()
    await _earned(subject, task, player_of(env, task), "an ordinary episode")
    return time.monotonic() - began


def faults_of(signals: Iterable[Signal]) -> list[str]:
    """Return why rewards that count are invalid, each with its name."""
    return [f"{signal.name}: {signal.reason}" for signal in signals if not signal.valid and signal.weight]


def calling(*calls: Call) -> Message:
    """Return a turn with calls and no text."""
    made = [ToolCall(type="function", function={"name": name, "arguments": arguments}) for name, arguments in calls]
    return Message(role="assistant", content="", tool_calls=made)


async def offered(subject: Subject, task: Task) -> Sequence[ToolSpec]:
    """Return the tools that an episode offers."""
    driver = EnvDriver(subject.make())
    try:
        return (await driver.reset(task)).tools
    finally:
        await driver.close()


def is_solved(trajectory: Trajectory) -> bool:
    """Return the environment's verdict on success, or else whether the rewards pass."""
    return bool(trajectory.success.value) if trajectory.success else passes(trajectory.signals)


async def check_floor(subject: Subject, answers: Answers, what: str, *, most: float, count: int = TASKS) -> str:
    """Check that attempts which solve nothing earn at most the share `most` of a solution's reward.

    They are made at `count` tasks of each split. Returns their mean reward, as a note.
    """
    tasks, scale = await sample_tasks(subject.make(), count), solution_reward(subject.make()) or DEFAULT_REWARD

    async def play(task: Task) -> Earned:
        return await earned(subject, task, answers(subject.make(), task, tasks), what)

    found = await play_each(play, tasks)
    mean = sum(each.reward for each in found) / len(found)
    solved = sum(each.is_solved for each in found) / len(found)
    if mean > most * scale + ROUNDING or solved > most + ROUNDING:
        best = max(found, key=lambda each: each.reward)
        raise FailedError(
            f"{what} earns {mean:.2f} on average and solves {solved:.0%} of {len(found)} tasks; "
            f"at task {best.task.id!r} ({best.task.split}) it earns {best.reward:g}"
        )
    if mean > ROUNDING:
        return f"mean reward {mean:.2g}, above 0: up to {most * scale:g} may be chance"
    return f"mean reward {mean:.2g}" if mean else ""


def sampled(tasks: int, most: int) -> str:
    """Return a note on how many tasks of each split were sampled; "" if they are as many as for quick episodes."""
    return "" if tasks == most else f"its episodes are slow; tasks of each split: {tasks}"


async def affordable(subject: Subject, most: int, episodes: int = 1) -> int:
    """Return how many times IN_TURN_S suffices for so many episodes, judged by one: at least once, at most `most`."""
    env = subject.make()
    task = (await sample_tasks(env, 1))[0]
    began = time.monotonic()
    await play_signals(env, task, player_of(env, task))
    return max(1, min(most, int(IN_TURN_S / (episodes * max(TICK_S, time.monotonic() - began)))))
