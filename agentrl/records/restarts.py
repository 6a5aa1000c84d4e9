"""Restarts: processes that died in a run and were replaced."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agentrl.errors import RunError
from agentrl.records.folder import RunFolder
from agentrl.records.jsonl import JsonLines, read_jsonl

TOGETHER_S = 60.0
"""Within this time all processes that a machine loses with itself have been missed."""


@dataclass(frozen=True, slots=True)
class Restart:
    """One process that was replaced; `at` is in Unix seconds."""

    at: float
    process: str
    why: str


@dataclass(frozen=True, slots=True)
class _Incident:
    """The processes of a kind that a machine has lost since a moment, in seconds of the monotonic clock."""

    began_at: float
    processes: set[str]

    def includes(self, process: str, now: float) -> bool:
        """Return whether a loss belongs to it. A process that is lost again does not."""
        return now - self.began_at < TOGETHER_S and process not in self.processes


class Restarts:
    """Appends to restarts.jsonl in a run folder; `note` shows the user what is lost and what is back.

    After more than `most` incidents of a kind the run ends: `engine.restarts`. What one cause takes is one incident,
    and so is what a machine loses within TOGETHER_S, because it may be lost itself. So are replacements that fail as
    they start: together they have waited for a machine, or were placed on one that was being lost.
    """

    def __init__(self, folder: RunFolder, most: int, note: Callable[[str], None]) -> None:
        self._lines, self._most, self._note = JsonLines(folder.restarts), most, note
        self._deaths: Counter[str] = Counter()
        self._incidents: dict[tuple[str, str], _Incident] = {}

    def lost(self, kind: str, hosts: Mapping[str, str], why: str) -> None:
        """Show and record processes that are lost for one cause; `hosts` has their machines, "" of one that never ran.

        Raises RunError after too many incidents of this kind.
        """
        process, is_new = ", ".join(hosts), [self._is_new(kind, *each) for each in hosts.items()]
        self._deaths[kind] += any(is_new)
        if any(is_new) and (deaths := self._deaths[kind]) > self._most:
            times = "once" if deaths == 1 else f"{deaths} times"
            raise RunError(f"{kind} died {times} (engine.restarts = {self._most}); the last, {process}: {why}")
        self._note(f"{process} is lost and will be replaced: {why}")
        self._lines.append(Restart(time.time(), process, why))

    def _is_new(self, kind: str, process: str, host: str) -> bool:
        """Return whether the loss of a process is an incident of its own, and begin it."""
        now, incident = time.monotonic(), self._incidents.get((kind, host))
        if incident is None or not incident.includes(process, now):
            self._incidents[kind, host] = _Incident(now, {process})
            return True
        incident.processes.add(process)
        return False

    def waits(self, process: str, why: str) -> None:
        """Show that a lost process waits, and why, while others do its work."""
        self._note(f"{process} still waits to be replaced: {why}")

    def back(self, process: str) -> None:
        """Show that `process` has been replaced."""
        self._note(f"{process} is back")

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._lines.close()


def read_restarts(folder: RunFolder) -> list[Restart]:
    """Return every restart of a run, in order."""
    return read_jsonl(folder.restarts, Restart)
