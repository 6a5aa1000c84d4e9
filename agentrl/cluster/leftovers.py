"""What a killed run leaves on a host outside its folder, and its removal there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from agentrl.cluster.processes import ProcessRegistry
from agentrl.errors import catch, catch_exit
from agentrl.weights.staging import discard_leftovers, folder_key

CLEANUPS_GROUP = "agentrl.cleanups"
END_S = 10.0


@dataclass(frozen=True)
class Collected:
    """What was removed from a host or could not be, a line for each."""

    lines: tuple[str, ...]
    has_failed: bool


def collect(runs: Sequence[Path]) -> Collected:
    """Remove from this host what the killed runs in these folders left, and what installed packages find.

    A package announces a callable without arguments in the group `agentrl.cleanups`. It removes what no living process
    owns and returns a line per removal.
    """
    lines: list[str] = []
    has_failed = False
    for run in runs:
        left = ProcessRegistry(run).leftovers()
        ended = catch(clean_host, run)
        lines += [str(ended.error)] if ended.error else [f"{one.role} (pid {one.pid}) of {run} ended" for one in left]
        has_failed |= ended.error is not None
    for point in metadata.entry_points(group=CLEANUPS_GROUP):
        cleaned = catch_exit(lambda point=point: list(point.load()()))
        lines += cleaned.value or []
        if error := cleaned.error:
            has_failed = True
            lines.append(f"{point.name}: its cleanup {point.value} is broken: {type(error).__name__}: {error}")
    return Collected(tuple(lines), has_failed)


def clean_host(run: Path) -> None:
    """End every process that the run in a folder started on this host, and remove its files outside the folder.

    Idempotent. Raises RunError if a process does not end.
    """
    ProcessRegistry(run).end_leftovers(END_S)
    discard_leftovers(run)
    shutil.rmtree(scratch_of(run), ignore_errors=True)


def scratch_of(run: Path) -> Path:
    """Return where the sockets of a run are, whose paths must be short; a resume after a kill removes it."""
    return Path(tempfile.gettempdir()) / f"agentrl-{folder_key(run)}"
