"""Truth: whether solutions and only solutions are rewarded, always alike, and whether the prompt gives them away."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from dataclasses import replace

from agentrl.checking import canaries, parts, probe
from agentrl.checking.attempts import AT_A_TASK, affordable, check_paid, sampled
from agentrl.checking.check import TASKS, Check, FailedError, Level, SkippedError, Subject
from agentrl.checking.groups import check_groups
from agentrl.checking.leaks import check_leak
from agentrl.env.adapter import Adapter
from agentrl.env.base import Env
from agentrl.env.comparison import difference
from agentrl.env.testing.checks import check_canaries, check_oracle
from agentrl.errors import acatch, catch
from agentrl.plugins.tracebacks import describe_error

ELSEWHERE = (
    probe.Surroundings(1, "Etc/GMT-14", "C"),
    probe.Surroundings(2, "Etc/GMT+11", "C.UTF-8", 1000 * probe.DAY_S),
)
"""The other processes. The second has another year, month and day of the week."""
OTHER_S = 60.0
"""Time for the tasks of other options, which may be far larger."""
DERIVED = "In another file, derive a class from agentrl.env.resolve of this one, and write {}."
LOCAL = "Keep what belongs to an episode in local variables or in its own instance, and change nothing that is shared."
"""Remedies for a function or a file of OpenRLHF."""
SILENT = 4
"""About how many episodes of silence a task of each split is, with two configurations."""
BUDGET_S, MORE, MANY = 15.0, 4, 2048
"""The oracle solves more tasks, `MORE` times as many in each round, while a round takes less than these seconds."""


async def oracle(subject: Subject) -> str:
    """Check that the oracle solves every sampled task."""
    check_paid(subject)
    if subject.env_class.oracle is Env.oracle and (source := _source(subject)):
        raise FailedError(
            f"its {source} gives no solutions, so that nothing shows whether they are rewarded: to check that, write "
            f"oracle(task) in a class that derives from agentrl.env.resolve({subject.name!r})"
        )
    tasks, began = TASKS, time.monotonic()
    await check_oracle(subject.make, tasks=tasks)
    while tasks < MANY and MORE * (time.monotonic() - began) < BUDGET_S:
        tasks, began = tasks * MORE, time.monotonic()
        await check_oracle(subject.make, tasks=tasks)
    return f"up to {tasks} tasks of each split"


def _source(subject: Subject) -> str:
    """Return what an environment without a class of its author is made from; "" if there is a class."""
    if issubclass(subject.env_class, Adapter):
        return "library"
    return "file" if subject.has_rows else ""


async def own_canaries(subject: Subject) -> str:
    """Check that the environment's own canaries earn nothing."""
    check_paid(subject)
    if subject.env_class.canaries is Env.canaries:
        raise FailedError(f"{subject.env_class.__name__} has no canaries; write canaries(task)")
    await check_canaries(subject.make, tasks=TASKS)
    return ""


async def order(subject: Subject) -> str:
    """Check that the verdicts do not depend on the order of the episodes."""
    tasks = await affordable(subject, TASKS // 2, AT_A_TASK)
    forward = await probe.verdicts(subject, tasks)
    backward = await probe.verdicts(subject, tasks, is_reversed=True)
    if found := difference(forward, backward):
        raise FailedError(f"the same episode has another verdict after other episodes: {found}")
    return sampled(tasks, TASKS // 2)


async def process(subject: Subject) -> str:
    """Check that tasks and verdicts are the same in this process and in others, which have other surroundings."""
    tasks = await affordable(subject, TASKS // 2, AT_A_TASK)
    try:
        async with asyncio.TaskGroup() as every:
            asked = {
                "this process": every.create_task(probe.verdicts(subject, tasks)),
                **{
                    str(place): every.create_task(
                        probe.verdicts_elsewhere(subject, tasks, place, is_reversed=bool(number))
                    )
                    for number, place in enumerate(ELSEWHERE)
                },
            }
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    for (name, one), (other_name, other) in itertools.pairwise(asked.items()):
        if found := difference(_plain(one.result()), _plain(other.result())):
            raise FailedError(f"{name} has another verdict than {other_name}: {found}")
    return sampled(tasks, TASKS // 2)


async def options(subject: Subject) -> str:
    """Check that tasks and prompts with other numbers as options are those of a process that has read no others."""
    other = _renumbered(subject)
    if other.options == subject.options:
        raise SkippedError("it has no option that is a number and may be another one")
    changed = ", ".join(f"{key} {value}" for key, value in other.options.items() if key not in subject.options)
    tasks = await affordable(subject, TASKS // 2, SILENT)
    await probe.verdicts(subject, tasks, is_silent=True)
    read = await acatch(asyncio.wait_for(probe.verdicts(other, tasks, is_silent=True), OTHER_S))
    if read.error:
        why = f"took {OTHER_S:.0f} s" if isinstance(read.error, TimeoutError) else describe_error(read.error)
        raise SkippedError(f"with {changed}, no episode runs: {why}")
    alone = await probe.verdicts_elsewhere(other, tasks, ELSEWHERE[0], is_silent=True)
    if found := difference(_plain(read.value), _plain(alone)):
        raise FailedError(f"with {changed}, a process that has read other options differs from a new one: {found}")
    return f"with {changed}"


def _renumbered(subject: Subject) -> Subject:
    """Return the environment with another value of each option that is a number and was not given."""
    for key, value in subject.make().config:
        if key in subject.options or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        others = (
            replace(subject, options={**subject.options, key: other}) for other in (value + 1, value - 1, 2 * value)
        )
        subject = next(
            (other for other in others if other.options[key] != value and not catch(other.make).error), subject
        )
    return subject


def _plain(verdicts: probe.Verdicts) -> probe.Verdicts:
    """Return verdicts as they come from another process."""
    plain: probe.Verdicts = json.loads(json.dumps(verdicts))
    return plain


CHECKS = (
    Check(
        "oracle", Level.TRUTH, "Does the oracle solve every sampled task?",
        "Write oracle(task), and make the verifier accept what it returns; solved_reward says what it earns if not 1.",
        oracle, plays_first=True, of_rows=DERIVED.format("oracle(task) in it"),
    ),
    Check(
        "canaries", Level.TRUTH, "Do the environment's own canaries earn nothing?",
        "Write canaries(task) with the cheats that you can think of, and make the verifier give each 0.", own_canaries,
        of_rows=DERIVED.format("canaries(task) in it with the cheats that you can think of"),
    ),
    *canaries.CHECKS,
    *parts.CHECKS,
    Check(
        "leak", Level.TRUTH, "Do the prompt and the tools keep the answer to themselves?",
        "Take the answer out of the prompt, its examples, the data that setup formats, and the tools.", check_leak,
        of_rows="Take the answer out of the prompt, its examples and its template.",
    ),
    Check(
        "order", Level.TRUTH, "Is the verdict the same in whatever order episodes are scored?",
        "Keep what belongs to an episode in ctx.state, and change nothing that is shared.", order,
        of_rows=LOCAL,
    ),
    Check(
        "groups", Level.TRUTH, "Are group rewards the same in any order of the members, and equal for equal members?",
        "Compare each member with all others, give equal members equal rewards, and return a value for a group of one.",
        check_groups,
    ),
    Check(
        "process", Level.TRUTH, "Are tasks and verdicts the same in every process, wherever and whenever it runs?",
        "Sort sets, use hashlib instead of hash(), read neither clock nor time zone, and find files beside __file__.",
        process, probe.PATIENCE_S + 10.0,
    ),
    Check(
        "options", Level.TRUTH, "Are the tasks those of the options, whatever options were used before?",
        "Keep tasks in the instance, or put every option that they depend on into the key of what is shared.",
        options, probe.PATIENCE_S + 10.0,
    ),
)  # fmt: skip
