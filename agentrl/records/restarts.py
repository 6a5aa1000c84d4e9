"""Restarts: engines and workers that died in a run and were replaced."""

from __future__ import annotations

import time
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
    """Appends to restarts.jsonl in a run folder."""

    def __init__(self, folder: RunFolder) -> None:
        self._lines = JsonLines(folder.restarts)

    def add(self, process: str, why: str) -> None:
        """Record that `process` is replaced, with the reason."""
        self._lines.append(Restart(time.time(), process, why))

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._lines.close()


def read_restarts(folder: RunFolder) -> list[Restart]:
    """Return every restart of a run, in order."""
    return read_jsonl(folder.restarts, Restart)
