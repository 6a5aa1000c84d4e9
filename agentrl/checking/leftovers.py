"""Whether episodes leave threads, processes, open files, sockets or temporary files behind."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agentrl.checking.check import FailedError, SkippedError, Subject
from agentrl.env.driver.resources import close_shared
from agentrl.env.policies import player_of
from agentrl.env.testing.episodes import play_signals, sample_tasks

EPISODES = 4
SETTLE_S = 2.0
"""Time for what ends in the background."""
OWN_THREADS = frozenset({"agentrl-check", "agentrl-checks", "agentrl-env", "agentrl-gymnasium", "agentrl-watch"})
"""Threads that the framework starts when it needs them, and keeps."""
CHANNELS = {"socket:": "open socket", "pipe:": "open pipe"}
PROC = Path("/proc/self")


async def check_leftovers(subject: Subject) -> str:
    """Compare what exists after one round of episodes with what exists after another, which should add nothing."""
    if not await asyncio.to_thread(PROC.is_dir):
        raise SkippedError("this system has no /proc, which lists threads, processes and open files")
    with _own_temporary_folder() as folder:
        await _round(subject)
        before = _existing(folder)
        await _round(subject)
        added = _existing(folder) - before
        waited_s = 0.0
        while added and waited_s < SETTLE_S:
            await asyncio.sleep(0.1)
            waited_s, added = waited_s + 0.1, _existing(folder) - before
    if added:
        listed = ", ".join(f"{name} ({count})" for name, count in added.most_common(5))
        raise FailedError(f"{EPISODES} episodes leave behind: {listed}")
    return ""


async def _round(subject: Subject) -> None:
    tasks = await sample_tasks(subject.make(), EPISODES)
    for task in tasks[:EPISODES]:
        env = subject.make()
        await play_signals(env, task, player_of(env, task))
    await close_shared()
    gc.collect()


def _existing(folder: Path) -> Counter[str]:
    """Return the threads, child processes, open files and temporary files of this process, by description."""
    threads = (f"thread {thread.name}" for thread in threading.enumerate() if thread.name not in OWN_THREADS)
    processes = (f"process {_command(pid)}" for pid in _children())
    files = filter(None, map(_described, _open_files()))
    temporary = (f"temporary file {path.name}" for path in folder.iterdir())
    return Counter([*threads, *processes, *files, *temporary])


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
