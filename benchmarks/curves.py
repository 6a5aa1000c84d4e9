"""Learning curves of algorithms over seeds on one task: one figure, one table, from runs that it starts or resumes.

    python -m benchmarks.curves --task math --algorithms grpo rloo --out runs/curves --figure docs/learning/algorithms
    python -m benchmarks.curves --task guess --algorithms grpo "grpo --learner.min_lr_ratio 0"

An algorithm may bring flags of `agentrl train`; one that names nodes, such as "grpo --engine.nodes right
--learner.nodes left", runs on hosts of these names, which are namespaces of this machine, with root. FIGURE.json holds
the outcome of every run that has ended, which is not repeated, also where its folder is gone; its checkpoints are
removed. A run that was stopped is resumed. The command may therefore be stopped at any time and called again, on
another machine too; `--minutes` stops it between runs. `--jobs` shares the cores among runs at the same time. It draws
FIGURE.svg and writes the table FIGURE.md; the last line is the figures as JSON: the curve of each algorithm.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from threading import Lock

import msgspec

from agentrl.metrics.trackers import read_evaluations, read_steps
from agentrl.records.folder import RunFolder
from agentrl.records.jsonl import write_atomic
from agentrl.records.manifest import cpu_name
from agentrl.report.summary import read
from benchmarks.learning import INK, RIGHT, WIDTH, chart, line, points_of, rows, y_of
from benchmarks.timing import last_line
from tests.cluster.hosts import hosts, join_all

GOAL = 0.7
SPENT = ("steps", "seconds")
COLORS = ("#0969da", "#bf8700", "#1a7f37", "#cf222e", "#8250df", "#57606a", "#bc4c00", "#0550ae")
CALCULATOR = (
    *("--env.level", "2", "--env.tools", "calculator", "--env.shots", "1", "--env.turns", "3", "--max-tokens", "48"),
    *("--steps", "20", "--eval.every", "5", "--eval.tasks", "32", "--eval.samples", "4"),
    *("--learner.micro_batch_tokens", "2048"),
)
TASKS = {
    "guess": ("--env", "guess", "--eval.every", "5", "--eval.samples", "8"),
    "math": ("--env", "math", "--eval.every", "5", "--eval.samples", "8"),
    "short": ("--env", "math", "--steps", "15", "--eval.every", "5", "--eval.samples", "4"),
    "tools": ("--env", "math", *CALCULATOR),
    "agent": ("--env", "examples/calculator_agent.py", *CALCULATOR),
}
"""`short` is the beginning of `math`; `tools` and `agent` are the same tasks, played step by step and by an agent of
openai-agents."""


@dataclass(frozen=True)
class Outcome:
    """What remains of a run that has ended: held-out pass@1 by step, and the seconds of its steps less evaluations."""

    algorithm: str
    seed: int
    cpu: str
    scores: dict[int, float]
    seconds: list[float]

    @classmethod
    def of(cls, algorithm: str, seed: int, folder: RunFolder) -> Outcome:
        """The outcome of a run of this algorithm, with its flags, from the folder of the run."""
        scores = {record.step: round(record.pass_at_1.mean, 4) for record in read_evaluations(folder)}
        seconds = [round(step.seconds.total - step.seconds.evaluate, 1) for step in read_steps(folder)]
        return cls(algorithm, seed, cpu_name(), scores, seconds)

    def to_goal(self) -> tuple[int, float] | None:
        """Steps and seconds until the score first reaches GOAL; None if it does not."""
        step = next((step for step, score in self.scores.items() if score >= GOAL), None)
        return None if step is None else (step, sum(self.seconds[:step]))


class Outcomes:
    """The outcomes in a file, FIGURE.json, which is written whenever a run ends."""

    def __init__(self, file: Path, task: str) -> None:
        self._file, self._task, self._lock = file, task, Lock()
        self._ended = msgspec.json.decode(file.read_bytes(), type=dict[str, list[Outcome]]) if file.exists() else {}

    def of(self, algorithm: str, seeds: Sequence[int]) -> list[Outcome]:
        """The outcomes of these seeds, as far as their runs have ended."""
        return [one for one in self._ended.get(self._task, []) if one.algorithm == algorithm and one.seed in seeds]

    def add(self, outcome: Outcome) -> None:
        with self._lock:
            self._ended.setdefault(self._task, []).append(outcome)
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._file, msgspec.json.format(msgspec.json.encode(self._ended), indent=0) + b"\n")


def run_all(
    task: str, algorithms: Sequence[str], seeds: Sequence[int], out: Path, ended: Outcomes, minutes: float, jobs: int
) -> None:
    """Start or resume every run that has not ended, seed by seed, until the minutes are over, each on its own cores."""
    ends_at = time.monotonic() + 60 * minutes

    def run(algorithm: str, seed: int) -> None:
        if ended.of(algorithm, [seed]) or time.monotonic() > ends_at:
            return
        folder = folder_of(out, task, algorithm, seed)
        if not has_ended(folder):
            print(f"{folder}: {'resumed' if RunFolder(folder).is_training else 'started'}", flush=True)
            with command(algorithm) as prefix:
                subprocess.run([*prefix, *words(task, algorithm, seed, folder)], check=True)
        ended.add(Outcome.of(algorithm, seed, RunFolder(folder)))
        shutil.rmtree(RunFolder(folder).checkpoints)  # gigabytes each, and the run is not repeated

    cores = sorted(os.sched_getaffinity(0))
    shares: SimpleQueue[list[int]] = SimpleQueue()
    for job in range(jobs):
        shares.put(cores[job::jobs])
    pool = ThreadPoolExecutor(jobs, initializer=lambda: os.sched_setaffinity(0, shares.get()))
    try:
        for one in [pool.submit(run, algorithm, seed) for seed in seeds for algorithm in algorithms]:
            one.result()
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def command(algorithm: str) -> Iterator[list[str]]:
    """Yield how `agentrl` is called: here, or on the first of the hosts that the flags of the algorithm name."""
    given = algorithm.split()
    names = list(dict.fromkeys(name for key, name in pairwise(given) if key.endswith(".nodes")))
    agentrl = ["nice", sys.executable, "-m", "agentrl"]
    if not names:
        yield agentrl
        return
    with hosts(*names) as (head, *others):
        head.start_ray(head.name)
        join_all(head, {other: other.name for other in others})
        yield head.command(*agentrl)


def words(task: str, algorithm: str, seed: int, folder: Path) -> list[str]:
    """Return the command that starts or resumes a run."""
    if RunFolder(folder).is_training:
        return ["resume", str(folder)]
    return ["train", *TASKS[task], "--algo", *algorithm.split(), "--seed", str(seed), "--out", str(folder)]


def folder_of(out: Path, task: str, algorithm: str, seed: int) -> Path:
    return out / f"{task}-{algorithm.replace(' --', '-').replace(' ', '=')}-{seed}"


def has_ended(folder: Path) -> bool:
    """True if the run has trained its last step."""
    if not RunFolder(folder).is_training:
        return False
    summary = read(RunFolder(folder))
    return summary is not None and summary.is_finished


def draw(curves: Mapping[str, Sequence[Outcome]], title: str) -> str:
    """All curves as a stand-alone SVG."""
    lines = {name: points_of([run.scores for run in runs]) for name, runs in curves.items()}
    body = "".join(
        f'{line(one, color)}<text x="{WIDTH - RIGHT}" y="{y_of(0.5) + 16 * n:.1f}" text-anchor="end" '
        f'fill="{color}">{name}</text>'
        for n, ((name, one), color) in enumerate(zip(lines.items(), COLORS, strict=False))
    )
    longest = max(lines.values(), key=len)
    return chart(title, INK, [point.step for point in longest], body, "steps")


def table(curves: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    """Yield the lines of a Markdown table: held-out scores, and steps and seconds to GOAL of each seed."""
    head = ("algorithm", "start", "end (95 % interval over seeds)", "best (step)", *(f"{x} to {GOAL}" for x in SPENT))
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for name, runs in curves.items():
        one, reached = points_of([run.scores for run in runs]), [run.to_goal() for run in runs]
        first, last, best = one[0].mean, one[-1].mean, max(one, key=lambda point: point.mean.mean)
        steps = ", ".join(str(found[0]) if found else "never" for found in reached)
        seconds = ", ".join(f"{found[1]:.0f}" if found else "never" for found in reached)
        low, high = max(0.0, last.low), min(1.0, last.high)
        end, top = f"{last.mean:.3f} ({low:.3f} to {high:.3f})", f"{best.mean.mean:.3f} ({best.step})"
        yield f"| {name} | {first.mean:.3f} | {end} | {top} | {steps} | {seconds} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=sorted(TASKS), default="math")
    parser.add_argument("--algorithms", nargs="+", required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("runs/curves"), help="folder of the run folders")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no run after so many minutes")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time; at most one per core")
    parser.add_argument(
        "--figure", type=Path, default=Path("runs/curves/figure"), help="figure, outcomes and table, without an ending"
    )
    args = parser.parse_args()
    args.out = args.out.absolute()
    if not 1 <= args.jobs <= (cores := len(os.sched_getaffinity(0))):
        parser.error(f"--jobs must be between 1 and the {cores} cores of this machine, not {args.jobs}")
    ended = Outcomes(args.figure.with_suffix(".json"), args.task)
    run_all(args.task, args.algorithms, args.seeds, args.out, ended, args.minutes, args.jobs)
    curves = {name: runs for name in args.algorithms if (runs := ended.of(name, args.seeds))}
    if not curves:
        sys.exit("no run has ended")
    args.figure.with_suffix(".svg").write_text(draw(curves, f"{args.task}: held-out pass@1, mean over seeds"))
    args.figure.with_suffix(".md").write_text("\n".join(table(curves)) + "\n")
    print("\n".join(table(curves)))
    points = {name: rows(points_of([run.scores for run in runs])) for name, runs in curves.items()}
    print(last_line("curves", {"task": args.task, "curves": points}))


if __name__ == "__main__":
    main()
