"""An environment tried out: what every episode would meet is a fault, what its author should know is a note."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from agentrl.env.authored import caught, caught_async
from agentrl.env.base import Env
from agentrl.env.blame import defined_at, describe, is_foreign_class, told, traceback_of
from agentrl.env.episode import Episode
from agentrl.env.play import aplay
from agentrl.env.registry import resolve
from agentrl.env.resources import close_shared
from agentrl.env.settings import load_config
from agentrl.env.tasks import IndexedTasks, Task
from agentrl.env.tools import tools_of
from agentrl.errors import AgentRLError, ConfigError, EnvError
from agentrl.types import Signal

SILENT = ((), ())
ANSWERS = ("1", "yes")
MOST_TURNS = 2
MOST_COMPARED, MOST_REREAD, MOMENT_S = 10_000, 100, 1.0
TICK_S, LONG_S = 0.05, 1.0
ASK_S = 2.0


async def verdict(name: str, options: dict[str, Any], splits: list[str], seed: int, max_turns: int) -> list[Any]:
    """[fault, notes] of the environment called `name`; a fault is "" where the run may begin."""
    outcome = await caught_async(_notes(name, options, splits, seed, max_turns))
    await caught_async(close_shared())
    error = outcome.error
    if error is None:
        return ["", outcome.value]
    if getattr(error, "fault", "program") == "infra":
        return ["", [f"The first episode failed, for no fault of the environment's: {described(error)}."]]
    raised = error.__cause__ is not None or not is_ours(error)
    return [f"{described(error)}\n\n{told(error)}" if raised else described(error), []]


async def _notes(name: str, options: dict[str, Any], splits: list[str], seed: int, max_turns: int) -> list[str]:
    env_class = resolve(name)
    env = env_class(load_config(env_class, options))
    began = time.monotonic()
    firsts = [await _first(env, split, seed) for split in splits]
    is_quick = time.monotonic() - began < MOMENT_S
    turns = min(MOST_TURNS, max_turns or env.limits.max_turns)
    notes = [*await _played(env, firsts[0], seed, turns), *await _overlap(env, splits, seed), *_dumb_tools(env)]
    for split in splits if is_quick else ():
        await _reread(env, split, seed)
    return notes


async def _first(env: Env, split: str, seed: int) -> Task:
    """The first task of a split; ConfigError where there is none."""
    try:
        return await _first_of(env, split, seed)
    except EnvError as error:
        if error.__cause__ is not None:
            raise
        raise EnvError(f"{type(env).__name__}{defined_at(env.tasks)}: {error}") from None


async def _first_of(env: Env, split: str, seed: int) -> Task:
    if await env.asize(split, seed) == 0:
        off = ", or --eval.tasks 0 for a run without an evaluation" if split == "test" else ""
        raise ConfigError(f"{type(env).__name__}: tasks({split!r}) is empty: give it a task{off}")
    return await env.atask(split, 0, seed)


async def _played(env: Env, task: Task, seed: int, turns: int) -> list[str]:
    """Notes on a silent group; ConfigError for a reward without a value."""
    before, began = shared_state(type(env)), time.monotonic()
    async with pulse() as longest:
        episodes = await aplay(env, SILENT, task, seed, turns)
    if failed := _valueless(episodes[0]):
        raise ConfigError(await _refusal(env, task, failed, seed, turns))
    notes = []
    if not episodes[0].signals:
        notes.append(f"An empty answer brought {type(env).__name__} no signal at all: such a sample is never trained.")
    if changed := [name for name, value in shared_state(type(env)).items() if value != before.get(name, value)]:
        where = f"{type(env).__name__}.{', '.join(changed)}"
        notes.append(f"{where} changed in an episode: it is one for all episodes of a worker; use ctx.state.")
    if max(longest) > LONG_S:
        notes.append(
            f"The environment held its event loop for {max(longest):.1f} s, in which no other episode goes on: "
            "what blocks belongs in plain methods, without blocking = False, or in asyncio.to_thread."
        )
    if time.monotonic() - began < MOMENT_S:
        again = await aplay(env, SILENT, task, seed, turns)
        if [episode.messages for episode in again] != [episode.messages for episode in episodes]:
            notes.append("The same seed gave an episode with other messages: draw from ctx.rng alone.")
    return notes


@asynccontextmanager
async def pulse() -> AsyncIterator[list[float]]:
    """How long the event loop stood still at most while the body ran, as the largest of a list."""
    longest = [0.0]

    async def beat() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(TICK_S)
            longest.append(time.monotonic() - began - TICK_S)

    beating = asyncio.ensure_future(beat())
    await asyncio.sleep(0)
    try:
        yield longest
    finally:
        await asyncio.sleep(0)
        beating.cancel()


def shared_state(env_class: type) -> dict[str, str]:
    """What the author's classes hold in lists, dicts and sets of their own, by name."""
    authors = [base for base in env_class.__mro__ if is_foreign_class(base)]
    held = {name: value for base in reversed(authors) for name, value in vars(base).items()}
    return {name: repr(value) for name, value in held.items() if type(value) in (list, dict, set)}


def _valueless(episode: Episode) -> Signal | None:
    """The first reward or verdict on success of an episode that has no value: its sample would be dropped."""
    counted = (signal for signal in episode.signals if signal.weight)
    return next((signal for signal in (*counted, *_success(episode)) if not signal.valid), None)


async def _refusal(env: Env, task: Task, failed: Signal, seed: int, turns: int) -> str:
    """What is wrong with a reward without a value; where it is the empty answer, what to return for one."""
    name = f"{type(env).__name__}.{failed.name}"
    said = f"{name} has no value: {failed.reason}"
    if await _is_of_silence(env, task, failed, seed, turns):
        said = (
            f"{name} has no value for an empty answer: {failed.reason}. A sample without a value is dropped, and no "
            f"failing model must gain that: return {'False' if failed.name == 'success' else '0'}"
        )
    return f"{said}\n\n{traceback_of(failed)}".rstrip()


async def _is_of_silence(env: Env, task: Task, failed: Signal, seed: int, turns: int) -> bool:
    """True when the same reward comes to something else for an answer that is not empty."""
    oracle = caught(env.oracle, (task,)).value
    for policy in filter(None, (oracle, *((answer,) * turns for answer in ANSWERS))):
        most = 0 if policy is oracle else turns
        played = await caught_async(asyncio.wait_for(aplay(env, (policy, policy), task, seed, most), ASK_S))
        if played.error is None and _kinds(played.value[0], failed.name) - {_kind(failed)}:
            return True
    return False


def _kinds(episode: Episode, name: str) -> set[str]:
    return {_kind(signal) for signal in (*episode.signals, *_success(episode)) if signal.name == name}


def _kind(signal: Signal) -> str:
    """What a reward came to: a value, nothing that could be used, or an error of a kind."""
    if signal.valid:
        return "value"
    return signal.reason.partition(":")[0] if traceback_of(signal) else "unusable"


def _success(episode: Episode) -> tuple[Signal, ...]:
    return (episode.success,) if episode.success else ()


async def _overlap(env: Env, splits: list[str], seed: int) -> list[str]:
    """Tells of held-out tasks that are trained on."""
    ids = [await _ids(env, split, seed) for split in splits]
    if len(ids) < 2 or not (both := set(ids[0]) & set(ids[1])):
        return []
    return [
        f"{len(both)} of {len(ids[1])} held-out tasks are training tasks too, as {min(both)!r}: no score is held out."
    ]


async def _ids(env: Env, split: str, seed: int) -> list[str]:
    """The ids of the first tasks of a split, as many as can be read in a moment."""
    until, size = time.monotonic() + MOMENT_S, await env.asize(split, seed)
    ids: list[str] = []
    while len(ids) < (MOST_COMPARED if size is None else min(MOST_COMPARED, size)) and time.monotonic() < until:
        ids.append((await env.atask(split, len(ids), seed)).id)
    return ids


async def _reread(env: Env, split: str, seed: int) -> None:
    """ConfigError where a task is another one when the tasks are read again."""
    ids = (await _ids(env, split, seed))[:MOST_REREAD]
    source = await env.code.call(env.tasks, split, timeout_s=env.limits.load_timeout_s)
    again = await env.code.call(
        partial(IndexedTasks, source, split, seed), timeout_s=env.limits.load_timeout_s, name="tasks"
    )
    for index, known in enumerate(ids):
        if (task := again[index]).id != known:
            raise ConfigError(
                f"{type(env).__name__}: task {index} of {split!r} is {known!r}, and {task.id!r} when it is read again: "
                "tasks must not depend on chance; seed a random.Random of your own, or return a function of one"
            )


def _dumb_tools(env: Env) -> Iterator[str]:
    if dumb := [name for name, tool in tools_of(type(env)).items() if not tool.spec["description"]]:
        yield f"The model is told nothing of {', '.join(dumb)}: write a docstring."


def described(error: Exception) -> str:
    """An error of agentrl's tells its place itself."""
    return str(error) if is_ours(error) else describe(error)


def is_ours(error: Exception) -> bool:
    """True for errors that agentrl raises on purpose."""
    return isinstance(error, AgentRLError)
