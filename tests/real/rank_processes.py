"""The processes of a test's ranks: each runs `main` of a module, which does the work of one rank of a job."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def run_ranks(module: str, job: Any, folder: Path, ranks: int, deadline_s: float) -> list[Any]:
    """What each rank brought back; None from one that died."""
    (folder / "job").write_bytes(pickle.dumps(job))
    command = [sys.executable, "-c", f"from {module} import main; main()", str(folder)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}  # and sets have another order on each rank
    processes = [
        subprocess.Popen([*command, str(rank)], env={**env, "PYTHONHASHSEED": str(rank)}) for rank in range(ranks)
    ]
    try:
        for process in processes:
            process.wait(deadline_s)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    paths = [folder / f"result-{rank}.pickle" for rank in range(ranks)]
    return [pickle.loads(path.read_bytes()) if path.exists() else None for path in paths]


def work(rank_of: Callable[[Any, int], Any]) -> None:
    """Do the work of the rank that the command line names, and leave its result."""
    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    result = rank_of(pickle.loads((folder / "job").read_bytes()), rank)
    (folder / f"result-{rank}.pickle").write_bytes(pickle.dumps(result))
