"""Restarts: processes that died in a run and were replaced."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from agentrl.records.folder import RunFolder
from agentrl.records.jsonl import JsonLines, read_jsonl


@dataclass(frozen=True, slots=True)
class Restart:
    """One process that was replaced; `at` is in Unix seconds."""

    at: float
    process: str
    why: str


class Restarts:
    """Appends to restarts.jsonl in a run folder; `note` shows the user what is lost and what is back."""

    def __init__(self, folder: RunFolder, note: Callable[[str], None]) -> None:
        self._lines, self._note = JsonLines(folder.restarts), note

    def lost(self, process: str, why: str) -> None:
        """Show and record that `process` is lost, and why."""
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
