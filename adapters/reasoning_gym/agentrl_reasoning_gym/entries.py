"""The entries of a dataset, the same in every process, and their split."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agentrl.env import Task, is_in_share
from agentrl.errors import EnvError
from agentrl_reasoning_gym.library import Entry

SCRIPT = Path(__file__).with_name("generate.py")
SHOWN = 500
PROCESSES = {"codeio": 4}
"""Processes that generate a dataset whose entries are what programs return: a few depend on time or addresses."""
UNSOLVED = "Integral("
"""In the answer of an integral that the library could not solve: it repeats the question, which earns nothing."""


def generated(name: str, keys: Mapping[str, Any], seed: int, size: int, timeout_s: float) -> list[Entry | None]:
    """Return `size` entries, generated in a process with a fixed hash seed; None for one that another process lacks.

    Raises EnvError if that fails.
    """
    request = pickle.dumps((name, dict(keys), seed, size))
    with ThreadPoolExecutor() as threads:
        first, *others = threads.map(lambda _: _generated(name, request, timeout_s), range(PROCESSES.get(name, 1)))
    return [entry if all(other[index] == entry for other in others) else None for index, entry in enumerate(first)]


def _generated(name: str, request: bytes, timeout_s: float) -> list[Entry]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # the programs of codeio write files
        answer = subprocess.run(
            [sys.executable, "-P", str(SCRIPT)],
            input=request,
            cwd=folder,
            env=os.environ | {"PYTHONHASHSEED": "0"},
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    if answer.returncode:
        raise EnvError(f"reasoning-gym cannot generate rg:{name}: {answer.stderr.decode(errors='replace')[-SHOWN:]}")
    return list(pickle.loads(answer.stdout))


def tasks_of(name: str, entries: Sequence[Entry | None], held_out: float) -> dict[str, list[Task]]:
    """Return the tasks of "train" and "test".

    A hash of its question puts a task in one of them, and repeated questions count once; entries without a solution are
    left out. Raises EnvError if a split has no task.
    """
    splits: dict[str, dict[str, Task]] = {"train": {}, "test": {}}
    for index, entry in enumerate(entries):
        if entry is None or UNSOLVED in str(entry["answer"]):
            continue
        question = str(entry["question"])
        split = "test" if is_in_share(question, held_out) else "train"
        splits[split].setdefault(question, Task(f"{name}/{index}", entry))
    if empty := [split for split, tasks in splits.items() if not tasks]:
        different = len(splits["train"]) + len(splits["test"])
        raise EnvError(
            f"rg:{name}: {len(entries)} entries contain {different} different questions, and none for {empty[0]!r}: "
            "set --env.size higher, --env.heldout_share, or keys of the dataset that allow more questions"
        )
    return {split: list(tasks.values()) for split, tasks in splits.items()}
