"""A rehearsal before a run: the first tasks, and one silent group, in a process of its own and within seconds."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from agentrl.env.authored import caught_async
from agentrl.env.base import Env
from agentrl.env.blame import describe, told, traceback_of
from agentrl.env.episode import Episode
from agentrl.env.play import aplay
from agentrl.env.registry import resolve
from agentrl.env.resources import close_shared
from agentrl.env.settings import load_config
from agentrl.env.tasks import IndexedTasks, Task
from agentrl.env.tools import tools_of
from agentrl.errors import AgentRLError, ConfigError

PATIENCE_S = 20.0
SILENT = ((), ())
MOST_TURNS = 2
MOST_COMPARED, MOST_REREAD, MOMENT_S = 10_000, 100, 1.0


def rehearse(name: str, options: dict[str, Any], splits: Sequence[str], seed: int = 0, max_turns: int = 0) -> list[str]:
    """Ask for the first task of each split and play one by a model that says nothing; returns what a user should know.

    Raises ConfigError for what every episode of the run would meet: no tasks, a method that raises, a reward without a
    value. What takes longer than PATIENCE_S is left to the run, and so is what a service or the machine failed at.
    """
    order = json.dumps([name, options, list(splits), seed, max_turns], default=str)
    command = [sys.executable, "-P", "-m", "agentrl.env.rehearsal"]
    paths = os.pathsep.join(filter(None, sys.path))
    reading, writing = os.pipe()
    with os.fdopen(reading) as answer:
        with os.fdopen(writing):
            child = subprocess.Popen(
                [*command, str(writing)], stdin=subprocess.PIPE, stdout=2, pass_fds=[writing], text=True,
                env=os.environ | {"PYTHONPATH": paths},
            )  # fmt: skip
        try:
            child.communicate(order, PATIENCE_S)
        except subprocess.TimeoutExpired:
            return [f"Its first episode takes longer than {PATIENCE_S:g} s: it is not checked before the run."]
        finally:
            _ended(child)
        return _read(answer.read(), child.returncode)


def _ended(child: subprocess.Popen[str]) -> None:
    """End it, if need be with force, giving it a moment to close what it holds."""
    child.terminate()
    try:
        child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _read(text: str, code: int) -> list[str]:
    if not text:
        raise ConfigError(f"the environment ended its process with code {code} while its first task was played")
    fault, notes = json.loads(text)
    if fault:
        raise ConfigError(fault)
    return list(notes)


# --- in the child -------------------------------------------------------------------------------------------------


def main() -> None:
    """Rehearse what stdin orders; the verdict goes to the file descriptor that the command line names."""
    name, options, splits, seed, max_turns = json.load(sys.stdin)
    found = asyncio.run(verdict(name, options, splits, seed, max_turns))
    with os.fdopen(int(sys.argv[1]), "w") as answer:
        json.dump(found, answer)
    sys.stderr.flush()
    os._exit(0)  # threads that an author left running keep nobody waiting


async def verdict(name: str, options: dict[str, Any], splits: list[str], seed: int, max_turns: int) -> list[Any]:
    """[fault, notes]; a fault is "" where the run may begin."""
    outcome = await caught_async(_notes(name, options, splits, seed, max_turns))
    await caught_async(close_shared())
    error = outcome.error
    if error is None:
        return ["", outcome.value]
    if getattr(error, "fault", "program") == "infra":
        return ["", [f"Its first episode failed, for no fault of its own: {described(error)}."]]
    raised = error.__cause__ is not None or not is_ours(error)
    return [f"{described(error)}\n\n{told(error)}" if raised else described(error), []]


async def _notes(name: str, options: dict[str, Any], splits: list[str], seed: int, max_turns: int) -> list[str]:
    env_class = resolve(name)
    env = env_class(load_config(env_class, options))
    firsts = [await _first(env, split, seed) for split in splits]
    turns = min(MOST_TURNS, max_turns or env.limits.max_turns)
    episodes = await aplay(env, SILENT, firsts[0], seed, turns)
    notes = [note for episode in episodes[:1] for note in _judged(env, episode)]
    return [*notes, *await _tasks_twice(env, splits, seed), *_dumb_tools(env)]


async def _first(env: Env, split: str, seed: int) -> Task:
    """The first task of a split; ConfigError where there is none."""
    if await env.asize(split, seed) == 0:
        off = ", or --eval.tasks 0 for a run without an evaluation" if split == "test" else ""
        raise ConfigError(f"{type(env).__name__}: tasks({split!r}) is empty: give it a task{off}")
    return await env.atask(split, 0, seed)


def _judged(env: Env, episode: Episode) -> Iterator[str]:
    """ConfigError for a reward that has no value for a silent answer: such samples would be dropped, never worth 0."""
    for signal in (*episode.signals, *([episode.success] if episode.success else [])):
        if not signal.valid and (signal.weight or signal is episode.success):
            fault = (
                f"{type(env).__name__}.{signal.name} has no value for an empty answer: {signal.reason}. A sample "
                "without a value is dropped, and no failing model must gain that: return 0"
            )
            raise ConfigError(f"{fault}\n\n{traceback_of(signal)}".rstrip())
    if not episode.signals:
        yield f"An empty answer brought {type(env).__name__} no signal at all: such a sample is never trained."


async def _tasks_twice(env: Env, splits: list[str], seed: int) -> list[str]:
    """ConfigError where a task is another one on a second reading; tells of held-out tasks that are trained on."""
    ids = [await _ids(env, split, seed) for split in splits]
    for split, first in zip(splits, ids, strict=True):
        await _reread(env, split, seed, first[:MOST_REREAD])
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


async def _reread(env: Env, split: str, seed: int, ids: list[str]) -> None:
    source = await env.code.call(env.tasks, split, timeout_s=env.limits.load_timeout_s)
    again = await env.code.call(partial(IndexedTasks, source, split, seed), timeout_s=PATIENCE_S, name="tasks")
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


if __name__ == "__main__":
    main()
