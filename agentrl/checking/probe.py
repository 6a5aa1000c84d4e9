"""Verdicts of an environment on its own evidence, here or in another process with another hash seed and order."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory
from typing import Any

from agentrl.checking.check import FailedError, Subject
from agentrl.env.base import Env, Policy
from agentrl.env.driver.resources import close_shared
from agentrl.env.policies import NOISE, canaries_of, player_of
from agentrl.env.tasks import Task
from agentrl.env.testing.episodes import moments, sample_tasks, signals_of
from agentrl.plugins.files import absolute
from agentrl.plugins.processes import start_process
from agentrl.types import HELD_OUT, TRAIN, text_of

DAY_S = 86_400.0
PATIENCE_S = 280.0
"""Time for another process, with its imports."""
Verdicts = dict[str, Any]
"""By task and policy: the prompt, and the value of every signal."""


@dataclass(frozen=True)
class Surroundings:
    """What another process has, other than this one, apart from an empty working folder."""

    hash_seed: int
    time_zone: str
    locale: str
    ahead_s: float = 0.0
    """How far its clock (`time.time`) is ahead."""

    @property
    def variables(self) -> dict[str, str]:
        """Its environment variables."""
        return {"PYTHONHASHSEED": str(self.hash_seed), "TZ": self.time_zone, "LC_ALL": self.locale}

    def __str__(self) -> str:
        ahead = f", clock {self.ahead_s / DAY_S:,.0f} days ahead" if self.ahead_s else ""
        shown = " ".join(f"{name}={value}" for name, value in self.variables.items())
        return f"a process in an empty folder ({shown}{ahead})"


@dataclass(frozen=True)
class Probe:
    """What to ask: an environment with its options, tasks of each split, and whether the last task is asked first.

    `ahead_s` sets the clock (`time.time`) of the process forward.
    """

    name: str
    options: Mapping[str, Any]
    tasks: int
    is_reversed: bool = False
    ahead_s: float = 0.0
    is_silent: bool = False
    """Whether silence alone plays."""


def policies_of(env: Env, task: Task, is_silent: bool) -> dict[str, Policy]:
    """Return the environment's evidence, silence and noise, by name; or silence alone."""
    if is_silent:
        return {"silence": []}
    return {"oracle": player_of(env, task), **canaries_of(env, task), "silence": [], "noise": [NOISE]}


async def verdicts(subject: Subject, tasks: int, *, is_reversed: bool = False, is_silent: bool = False) -> Verdicts:
    """Read tasks and play them with each policy, in order or in reverse, in which the held-out ones are read first."""
    found: Verdicts = {}
    sampled = await sample_tasks(subject.make(), tasks, first=HELD_OUT if is_reversed else TRAIN)
    cases = [(task, name) for task in sampled for name in policies_of(subject.make(), task, is_silent)]
    for task, name in reversed(cases) if is_reversed else cases:
        env = subject.make()
        played = [each async for each in moments(env, task, policies_of(env, task, is_silent)[name])]
        prompt = text_of(env.ctx.messages[0])
        signals = {signal.name: signal.value for signal in signals_of(played).values()}
        found[f"{task.split} {task.index}, {name}"] = {"task": task.id, "prompt": prompt, "rewards": signals}
    return found


async def verdicts_elsewhere(
    subject: Subject, tasks: int, surroundings: Surroundings, *, is_reversed: bool = False, is_silent: bool = False
) -> Verdicts:
    """Return the verdicts of another process."""
    probe = Probe(absolute(subject.name), subject.options, tasks, is_reversed, surroundings.ahead_s, is_silent)
    paths = os.pathsep.join(map(os.path.abspath, sys.path))
    with TemporaryDirectory(prefix="agentrl-check-", ignore_cleanup_errors=True) as folder:
        child = await start_process(
            sys.executable, "-P", "-m", "agentrl.checking.probe",
            env=os.environ | surroundings.variables | {"PYTHONPATH": paths}, cwd=folder,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(PATIENCE_S):
                said, errors = await child.process.communicate(json.dumps(asdict(probe), default=str).encode())
        finally:
            await child.end()
    if (code := await child.exited()) or not said:
        raise FailedError(f"{surroundings} ends with code {code}: {_last(errors)}")
    found: Verdicts = json.loads(said)
    return found


def _last(errors: bytes) -> str:
    lines = errors.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it wrote nothing"


async def _answer(probe: Probe) -> Verdicts:
    subject = Subject.named(probe.name, probe.options)
    try:
        return await verdicts(subject, probe.tasks, is_reversed=probe.is_reversed, is_silent=probe.is_silent)
    finally:
        await close_shared()


def _set_clock_ahead(seconds: float) -> None:
    """Add seconds to what `time.time` and `time.time_ns` return."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + int(seconds * 1e9)


def main() -> None:
    """Write the verdicts that stdin asks for to stdout, and nothing that the environment prints."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        asked = Probe(**json.load(sys.stdin))
        if asked.ahead_s:
            _set_clock_ahead(asked.ahead_s)
        json.dump(asyncio.run(_answer(asked)), answers)
    os._exit(0)  # does not wait for threads that an author left running


if __name__ == "__main__":
    main()
