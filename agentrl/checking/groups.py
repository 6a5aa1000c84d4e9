"""Whether group rewards depend on the members of a group alone: in any order, alike for equal ones, and for one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from agentrl.checking.attempts import ROUNDING
from agentrl.checking.check import FailedError, SkippedError, Subject
from agentrl.env.context import Episode
from agentrl.env.driver.driver import EnvDriver
from agentrl.env.play import aplay
from agentrl.env.tasks import Task
from agentrl.env.testing.checks import own_evidence
from agentrl.env.testing.episodes import sample_tasks

ALIKE = 4
"""Equal members of a group."""
Rewards = dict[str, float]
"""The group rewards of a member, by name."""


async def check_groups(subject: Subject) -> str:
    """Score the episodes of the environment's own evidence as groups, at a task of each split."""
    if not EnvDriver(subject.make()).has_group_rewards:
        raise SkippedError("no reward compares the members of a group")
    for task in await sample_tasks(subject.make(), 1):
        members = await _members(subject, task)
        await _check_order(subject, task, members)
        for member in members:
            await _check_alike(subject, task, member)
            await _rewards(subject, [member])
    return ""


async def _members(subject: Subject, task: Task) -> list[Episode]:
    """Return the episodes of the evidence without group rewards."""
    env = subject.make()
    played = await aplay(env, tuple(own_evidence(env, task)), task)
    return [replace(each, signals=tuple(one for one in each.signals if one.scope != "group")) for each in played]


async def _check_order(subject: Subject, task: Task, members: Sequence[Episode]) -> None:
    numbers = range(len(members))
    rewards = await _rewards(subject, members)
    for order in (numbers[::-1], [*numbers[1:], *numbers[:1]]):
        again = await _rewards(subject, [members[number] for number in order])
        for number, other in zip(order, again, strict=True):
            if not _are_close(rewards[number], other):
                raise FailedError(
                    f"a member of a group of task {task.id!r} earns {rewards[number]}, and {other} in another order"
                )


async def _check_alike(subject: Subject, task: Task, member: Episode) -> None:
    rewards = await _rewards(subject, [replace(member, member=number) for number in range(ALIKE)])
    if other := next((each for each in rewards if not _are_close(each, rewards[0])), None):
        raise FailedError(
            f"of {ALIKE} equal members of a group of task {task.id!r}, one earns {rewards[0]}, one {other}"
        )


async def _rewards(subject: Subject, members: Sequence[Episode]) -> list[Rewards]:
    """Return the group rewards of each member. Raises FailedError if one is invalid."""
    rows = await EnvDriver(subject.make()).score_group(members)
    if fault := next((signal for row in rows for signal in row if not signal.valid and signal.weight), None):
        raise FailedError(f"{fault.name} is invalid for a group of {len(members)}: {fault.reason}")
    return [{signal.name: signal.value for signal in row if signal.value is not None} for row in rows]


def _are_close(one: Rewards, other: Rewards) -> bool:
    return one.keys() == other.keys() and all(math.isclose(one[name], other[name], abs_tol=ROUNDING) for name in one)
