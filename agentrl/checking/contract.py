"""Contract: whether the class, its tasks, its episodes and its configuration are what agentrl and Gymnasium expect."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from agentrl.checking.attempts import calling, offered
from agentrl.checking.calls import valid_arguments
from agentrl.checking.check import TASKS, Check, FailedError, Level, Subject
from agentrl.env.base import Policy
from agentrl.env.comparison import difference
from agentrl.env.config import env_config
from agentrl.env.driver.driver import EnvDriver
from agentrl.env.dry_run.completeness import UNPAID, check_complete, has_rewards
from agentrl.env.dry_run.duplicates import duplicate_methods
from agentrl.env.dry_run.tasks import duplicate_ids, first_task, overlap, read_tasks
from agentrl.env.dry_run.verdict import check_offered_tools, first_episode, turns_of, unchanged, undocumented
from agentrl.env.messages import few, short
from agentrl.env.play import aplay
from agentrl.env.policies import SILENCE, player_of, solution_of
from agentrl.env.tasks import Task
from agentrl.env.testing.checks import check_gymnasium, check_tasks
from agentrl.env.testing.episodes import play_signals, sample_tasks
from agentrl.errors import acatch, catch
from agentrl.types import HELD_OUT, TRAIN

EPISODE_S = 10.0
"""Time of an episode whose task is compared."""
DISTINCT = 0.5
"""Share of the first training tasks that must differ in their data to identify a task by it: sides of a coin do not."""


def fail_if(faults: Iterable[str]) -> None:
    """Raise FailedError with one line for each fault, if there are any."""
    if lines := list(faults):
        raise FailedError("\n".join(lines))


async def definition(subject: Subject) -> str:
    """Check the class itself, and that this machine can run it."""
    env = subject.make()
    driver = EnvDriver(env)
    is_paid = has_rewards(type(env))
    check_complete(driver, has_reward_models=not is_paid)
    unpaid = () if is_paid else (f"{type(env).__name__}: {UNPAID}",)
    twice = (f"{method} is defined twice, and Python keeps the last" for method in duplicate_methods(type(env)))
    fail_if([*unpaid, *twice, *undocumented(type(env))])
    await check_offered_tools(driver, await first_task(driver, TRAIN, 0), 0)
    return await asyncio.to_thread(env.preflight)


async def tasks(subject: Subject) -> str:
    """Check that both splits have tasks with ids of their own, which are the same when they are read again."""
    driver = EnvDriver(subject.make())
    for split in (TRAIN, HELD_OUT):
        await first_task(driver, split, 0)
    read = [await read_tasks(driver, split, 0) for split in (TRAIN, HELD_OUT)]
    fail_if(note for ids in read for note in duplicate_ids(ids))
    await check_tasks(subject.make, tasks=TASKS)
    return ", ".join(f"{ids.split}: {'endless' if ids.size is None else ids.size}" for ids in read)


async def disjoint(subject: Subject) -> str:
    """Check that no held-out task is a training task, neither by its id nor by its data and its first prompt.

    Prompts that differ in white space or case alone are the same.
    """
    driver = EnvDriver(subject.make())
    train, held_out = [await read_tasks(driver, split, 0) for split in (TRAIN, HELD_OUT)]
    fail_if(overlap([train, held_out]))
    sampled = train.tasks[: 8 * TASKS]
    if len({_text(task.data) for task in sampled}) <= DISTINCT * len(sampled):
        return "tasks are compared by their ids alone, because most training tasks have the data of another one"
    trained: dict[str, list[Task]] = defaultdict(list)
    for task in train.tasks:
        trained[_text(task.data)].append(task)
    asked = _Prompts(subject)
    shared = [
        (task, known)
        for task in held_out.tasks
        if task.data is not None and (known := await asked.same(task, trained.get(_text(task.data), [])))
    ]
    if shared:
        raise FailedError(
            f"{len(shared)} of {len(held_out.tasks)} held-out tasks have the data and the prompt of a training task, "
            f"up to white space and case: {few([f'{short(one.id)} equals {short(other.id)}' for one, other in shared])}"
        )
    return f"{len(held_out.tasks)} held-out tasks, {len(train.tasks)} for training"


class _Prompts:
    """First prompts of tasks, each made once."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._known: dict[tuple[str, int], str] = {}

    async def same(self, task: Task, others: list[Task]) -> Task | None:
        """Return the first of other tasks that has the prompt of a task."""
        for other in others:
            if await self._of(task) == await self._of(other):
                return other
        return None

    async def _of(self, task: Task) -> str:
        key = (task.split, task.index)
        if key not in self._known:
            driver = EnvDriver(self._subject.make())
            try:
                self._known[key] = _text(_folded((await driver.reset(task, seed=0)).messages))
            finally:
                await driver.close()
        return self._known[key]


def _folded(value: Any) -> Any:
    """Return messages without differences of white space and case."""
    if isinstance(value, dict):
        return {key: _folded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_folded(item) for item in value]
    return " ".join(value.split()).casefold() if isinstance(value, str) else value


def _text(value: Any) -> str:
    """Return a text that is the same for equal plain values."""
    try:
        return json.dumps(value, sort_keys=True, default=repr)
    except (TypeError, ValueError):
        return repr(value)


async def episode(subject: Subject) -> str:
    """Play a first episode of empty answers, as the dry run of a training run does; then the tools and the oracle."""
    driver = EnvDriver(subject.make())
    task = await first_task(driver, TRAIN, 0)
    _, notes = await first_episode(driver.env, task, 0, turns_of(driver))
    await _check_unchanged(subject, task)
    fail_if(notes)
    return ""


async def _check_unchanged(subject: Subject, task: Task) -> None:
    """Raise ConfigError if an ordinary episode or a call of a tool changes the task; nothing else is reported."""
    env = subject.make()
    policies = dict[str, Policy | None]()
    for tool in await offered(subject, task):
        policies[f"a call of {tool['name']}"] = [calling((tool["name"], valid_arguments(tool["parameters"])))]
    policies["an ordinary episode"] = catch(player_of, env, task).value
    for who, policy in policies.items():
        with unchanged(env, task, who):
            await acatch(asyncio.wait_for(play_signals(subject.make(), task, policy or ()), EPISODE_S))


async def serialisable(subject: Subject) -> str:
    """Check that messages, tools and signals of episodes survive JSON, in which runs are exported."""
    env = subject.make()
    task = (await sample_tasks(env, 1))[0]
    driver = EnvDriver(env)
    start = await driver.reset(task)
    await driver.close()
    for spec in start.tools:
        _check_json(spec, f"the tool {spec['name']!r}")
    policies: dict[str, Policy] = {"silence": [SILENCE]}
    if (solution := solution_of(env, task)) is not None:
        policies["the oracle"] = solution
    for name, policy in policies.items():
        [played] = await aplay(subject.make(), (policy,), task)
        _check_json(list(played.messages), f"a message of an episode of {name}")
        for signal in played.signals:
            _check_json(signal.evidence, f"the evidence of {signal.name!r} in an episode of {name}")
    return ""


def _check_json(value: Any, what: str) -> None:
    try:
        again = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise FailedError(f"{what} has no JSON form: {error}") from error
    if found := difference(_listed(value), again):
        raise FailedError(f"{what} is another one after JSON: {found}")


def _listed(value: Any) -> Any:
    """Return the value with lists in place of tuples, which JSON does not distinguish."""
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


async def configuration(subject: Subject) -> str:
    """Check that the options survive JSON, in which a run's configuration is stored."""
    config = subject.make().config
    dumped = json.loads(config.model_dump_json())
    again = env_config(subject.env_class, dumped)
    if found := difference(dict(config), dict(again)):
        raise FailedError(f"Config is another one after JSON: {found}")
    return f"{len(dumped)} keys"


async def gymnasium(subject: Subject) -> str:
    """Run Gymnasium's own checker, in a thread because its interface is synchronous."""
    await asyncio.to_thread(check_gymnasium, subject.make())
    return ""


CHECKS = (
    Check(
        "definition", Level.CONTRACT, "Does the class have what training needs, and does this machine?",
        "Write what is missing; docs/write-an-env.md shows each method.", definition,
        is_basis=True, of_rows="Write what is missing; docs/bring-an-agent.md shows a function.",
    ),
    Check(
        "tasks", Level.CONTRACT, "Do both splits have tasks, with ids of their own, that are the same when read again?",
        "Return tasks that depend on the split and on the given random.Random alone, and give each an id of its own.",
        tasks, of_rows="Give env.data and env.data_heldout rows, and do not change the files while they are used.",
    ),
    Check(
        "episode", Level.CONTRACT, "Does a first episode run as training needs it?",
        "Change what the text names.", episode,
        is_basis=True,
    ),
    Check(
        "disjoint", Level.CONTRACT, "Are the held-out tasks different from the training tasks?",
        "Assign each task to one split by a hash of its content (agentrl.env.is_in_share).", disjoint,
        of_rows="Remove the rows of env.data from env.data_heldout, or leave that out: equal rows are in one split.",
    ),
    Check(
        "json", Level.CONTRACT, "Do messages, tools and evidence survive JSON, in which runs are exported?",
        "Use text, finite numbers, booleans, None, lists, and dicts with text keys.", serialisable,
    ),
    Check(
        "config", Level.CONTRACT, "Do the options survive JSON, in which a run's configuration is stored?",
        "Give the field a type that pydantic writes as it reads it, without a serializer or default that changes it.",
        configuration,
    ),
    Check(
        "gymnasium", Level.CONTRACT, "Does Gymnasium's checker accept the environment?",
        "Change what Gymnasium names: observations and rewards depend on the seed and the actions alone.", gymnasium,
    ),
)  # fmt: skip
