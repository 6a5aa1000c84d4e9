"""Whether episodes leave threads, processes, files or sockets behind, or change what all of a worker share."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from agentrl.checking.check import FailedError, SkippedError, Subject
from agentrl.env.driver.resources import close_shared
from agentrl.env.policies import player_of
from agentrl.env.testing.episodes import play_signals, sample_tasks
from agentrl.errors import catch

EPISODES = 4
SETTLE_S = 2.0
"""Time for what ends in the background."""
OWN_THREADS = frozenset(
    {
        "agentrl-check",
        "agentrl-checks",
        "agentrl-env",
        "agentrl-gymnasium",
        "agentrl-play",
        "agentrl-render",
        "agentrl-role",
        "agentrl-watch",
    }
)
"""Threads that the framework starts when it needs them, and keeps."""
CHANNELS = {"socket:": "open socket", "pipe:": "open pipe"}
PROC = Path("/proc/self")
MAKING: dict[str, Callable[[tuple[Any, ...]], bool]] = {
    "open": lambda details: isinstance(details[2], int) and bool(details[2] & os.O_CREAT),
    "os.mkdir": lambda _: True,
    "os.rename": lambda _: True,
}
"""Whether an event of Python's audit makes a file or a folder, by its name."""
WATCHED: list[set[str]] = []


async def check_leftovers(subject: Subject) -> str:
    """Compare what exists after one round of episodes with what exists after another, which should add nothing."""
    if not await asyncio.to_thread(PROC.is_dir):
        raise SkippedError("this system has no /proc, which lists threads, processes and open files")
    with _own_temporary_folder() as folder:
        made = await _round(subject)
        before = _existing(folder, made)
        again = await _round(subject)
        added = _existing(folder, made | again) - before
        waited_s = 0.0
        while added and waited_s < SETTLE_S:
            await asyncio.sleep(0.1)
            waited_s, added = waited_s + 0.1, _existing(folder, made | again) - before
    if added:
        listed = ", ".join(f"{name} ({count})" for name, count in added.most_common(5))
        raise FailedError(f"{EPISODES} episodes leave behind: {listed}")
    return ""


async def _round(subject: Subject) -> set[str]:
    """Play episodes; returns the files that they made. Raises FailedError if each changes what a worker shares."""
    tasks, shared, home = (await sample_tasks(subject.make(), EPISODES))[:EPISODES], [], _working_folder()
    with _noting_files() as made:
        for task in tasks:
            env = subject.make()
            await play_signals(env, task, player_of(env, task))
            shared.append(dict(os.environ))
    await close_shared()
    gc.collect()
    if (now := _working_folder()) != home:
        os.chdir(home)
        raise FailedError(f"an episode changes the working folder, which all episodes of a worker share, to {now}")
    for name in sorted({*itertools.chain.from_iterable(shared)}):
        values = [each.get(name) for each in shared]
        if len({*values}) == len(values) > 1:
            raise FailedError(f"each episode sets the environment variable {name}, which all of a worker share")
    return made


def _working_folder() -> str:
    return catch(os.getcwd).value or "one that no longer exists"


@contextmanager
def _noting_files() -> Iterator[set[str]]:
    """Note the paths of the files and folders that this process makes."""
    made = set[str]()
    WATCHED.append(made)
    _hook()
    try:
        yield made
    finally:
        WATCHED.remove(made)


@cache
def _hook() -> None:
    """Add the audit hook, once: it stays for the life of the process."""
    sys.addaudithook(_notice)


def _notice(event: str, details: tuple[Any, ...]) -> None:
    """Note the path of a new file."""
    if WATCHED and event in MAKING and MAKING[event](details):
        path = details[1] if event == "os.rename" else details[0]
        if isinstance(path, str | bytes | os.PathLike):
            WATCHED[-1].add(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100 (a hook does as little as it can)


def _existing(folder: Path, made: set[str]) -> Counter[str]:
    """Return the threads, child processes, open files and new files of this process, by description."""
    threads = (f"thread {thread.name}" for thread in threading.enumerate() if thread.name not in OWN_THREADS)
    processes = (f"process {_command(pid)}" for pid in _children())
    files = filter(None, map(_described, _open_files()))
    temporary = (f"temporary file {path.name}" for path in folder.iterdir())
    elsewhere = (f"file {name}" for name in made if not name.startswith(f"{folder}/") and Path(name).exists())
    return Counter([*threads, *processes, *files, *temporary, *elsewhere])


def _described(target: str) -> str:
    """Return what a descriptor is, a socket or a pipe without its number; "" for what is none of these and no file."""
    if target.startswith("/"):
        return f"open file {target}"
    return next((name for prefix, name in CHANNELS.items() if target.startswith(prefix)), "")


def _command(pid: str) -> str:
    try:
        return Path("/proc", pid, "comm").read_text().strip()
    except OSError:
        return pid


def _children() -> Iterator[str]:
    for file in PROC.glob("task/*/children"):
        with suppress(OSError):  # the thread has ended
            yield from file.read_text().split()


def _open_files() -> Iterator[str]:
    for link in PROC.glob("fd/*"):
        try:
            yield str(link.readlink())
        except OSError:  # the descriptor of the listing itself
            continue


@contextmanager
def _own_temporary_folder() -> Iterator[Path]:
    """Make `tempfile` use a new folder until the end of the body."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="agentrl-check-") as folder:
        tempfile.tempdir = folder
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = before
