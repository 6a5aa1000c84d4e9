"""Restarts: processes that died in a run and were replaced."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from agentrl.errors import RunError
from agentrl.records.folder import RunFolder
from agentrl.records.jsonl import JsonLines, read_jsonl


@dataclass(frozen=True, slots=True)
class Restart:
    """One process that was replaced; `at` is in Unix seconds."""

    at: float
    process: str
    why: str


class Restarts:
    """Appends to restarts.jsonl in a run folder; `note` shows the user what is lost and what is back.

    Up to `most` processes of each kind are replaced: `engine.restarts`.
    """

    def __init__(self, folder: RunFolder, most: int, note: Callable[[str], None]) -> None:
        self._lines, self._most, self._note = JsonLines(folder.restarts), most, note
        self._deaths: Counter[str] = Counter()

    def lost(self, kind: str, process: str, why: str) -> None:
        """Show and record that `process` is lost, and why. Raises RunError when too many of its kind died."""
        self._deaths[kind] += 1
        if (deaths := self._deaths[kind]) > self._most:
            times = "once" if deaths == 1 else f"{deaths} times"
            raise RunError(f"{kind} died {times} (engine.restarts = {self._most}); the last, {process}: {why}")
        self._note(f"{process} is lost and will be replaced: {why}")
        self._lines.append(Restart(time.time(), process, why))

    def back(self, process: str) -> None:
        """Show that `process` has been replaced."""
        self._note(f"{process} is back")

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._lines.close()


def read_restarts(folder: RunFolder) -> list[Restart]:
    """Return every restart of a run, in order."""
    return read_jsonl(folder.restarts, Restart)
