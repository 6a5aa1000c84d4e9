"""Truth: whether solutions and only solutions are rewarded, always alike, and whether the prompt gives them away."""

from __future__ import annotations

import asyncio
import time

from agentrl.checking import canaries, probe
from agentrl.checking.attempts import AT_A_TASK, affordable, sampled
from agentrl.checking.check import TASKS, Check, FailedError, Level, Subject
from agentrl.checking.leaks import check_leak
from agentrl.env.adapter import Adapter
from agentrl.env.base import Env
from agentrl.env.comparison import difference
from agentrl.env.testing.checks import check_canaries, check_oracle

HASH_SEEDS = (1, 2)
DAYS_AHEAD = (0, 1000)
"""How far the clocks of the two processes are ahead: another year, month and day of the week."""
DAY_S = 86_400.0
DERIVED = "In another file, derive a class from agentrl.env.resolve of this one, and write {}."
LOCAL = "Keep what belongs to an episode in local variables or in its own instance, and change nothing that is shared."
"""Remedies for a function or a file of OpenRLHF."""
BUDGET_S, MORE, MANY = 15.0, 4, 2048
"""The oracle solves more tasks, `MORE` times as many in each round, while a round takes less than these seconds."""


async def oracle(subject: Subject) -> str:
    """Check that the oracle solves every sampled task."""
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
    """Check that tasks and verdicts are the same in other processes, which have other hash seeds and clocks."""
    tasks = await affordable(subject, TASKS // 2, AT_A_TASK)
    try:
        async with asyncio.TaskGroup() as both:
            asked = [
                both.create_task(probe.verdicts_elsewhere(subject, tasks, seed, days * DAY_S, is_reversed=bool(number)))
                for number, (seed, days) in enumerate(zip(HASH_SEEDS, DAYS_AHEAD, strict=True))
            ]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    one, other = (task.result() for task in asked)
    if found := difference(one, other):
        raise FailedError(
            f"another process (PYTHONHASHSEED {HASH_SEEDS}, its clock {DAYS_AHEAD[1]} days ahead) has another verdict: "
            f"{found}"
        )
    return sampled(tasks, TASKS // 2)


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
        "process", Level.TRUTH, "Are tasks and verdicts the same in every process, with any hash seed, at any time?",
        "Sort sets before you use their order, use hashlib instead of hash(), and let no verdict read the clock.",
        process, probe.PATIENCE_S + 10.0,
    ),
)  # fmt: skip
