"""Seconds from the command `agentrl train` to the first sampled token, and when each part is ready on the way.

python -m benchmarks.start [--model FOLDER] [--rounds 3]; the last line is the figures as JSON. The command runs as a
user would run it; each part is ready when it appears in the run's process registry.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from agentrl.cluster.processes import ProcessRegistry
from agentrl.config.models import locate
from agentrl.records.folder import RunFolder
from agentrl.records.ledger import Ledger
from benchmarks.timing import last_line, median

LIMIT_S = 600.0
IMPORTS = ("transformers", "ray", "vllm", "deepspeed")


def command(model: Path, dtype: str, out: Path) -> list[str]:
    """Return a command of one step with one token per episode: the first trajectory is the first token."""
    flags = {
        "--env": "math", "--model": str(model), "--model.dtype": dtype, "--model.max_context": "512", "--steps": "1",
        "--prompts": "1", "--group-size": "2", "--max-tokens": "1", "--eval.tasks": "0", "--out": str(out),
    }  # fmt: skip
    return [str(Path(sys.executable).with_name("agentrl")), "train", *(word for pair in flags.items() for word in pair)]


def start(model: Path, dtype: str, out: Path) -> dict[str, float]:
    """Run the command; returns the seconds to each mark by name."""
    began = time.time()
    marks: dict[str, float] = {}
    with subprocess.Popen(command(model, dtype, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            for role in {registered.role for registered in ProcessRegistry(out).registered()}:
                marks.setdefault(f"{role} ready", time.time() - began)
            if time.time() - began > LIMIT_S:
                process.terminate()  # the run then ends within 30 s, by itself
            time.sleep(0.05)
    if process.returncode:
        raise RuntimeError(f"the run ended with {process.returncode}: {' '.join(command(model, dtype, out))}")
    rows = list(Ledger(RunFolder(out).ledger, is_read_only=True).rows())
    marks["first episode dispatched"] = min(row.dispatched_at for row in rows) - began
    marks["first token"] = min(row.finished_at for row in rows if row.finished_at) - began
    return marks


def imports() -> Iterator[tuple[str, float]]:
    """Yield the seconds that each heavy package takes to import, alone in a fresh interpreter."""
    for package in IMPORTS:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", f"import {package}"], capture_output=True, check=True)
        yield package, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="model folder; default: the embedded SmolLM2-135M-Instruct")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    model = locate(args.model)
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.rounds):
            taken.append(start(model, args.dtype, Path(folder, str(number))))
            print(f"round {number + 1}: {taken[-1]}", flush=True)
    figures = {
        "rounds": args.rounds,
        "first_token_s": median([marks["first token"] for marks in taken]),
        "marks_s": {name: median([marks[name] for marks in taken if name in marks]) for name in taken[0]},
        "import_s": dict(imports()),
    }
    print(last_line("start", figures))


if __name__ == "__main__":
    main()
