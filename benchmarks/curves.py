"""Learning curves of algorithms over seeds on one task: one figure, one table, from runs that it starts or resumes.

    python -m benchmarks.curves --task math --algorithms grpo rloo --out runs/curves --figure docs/learning/algorithms
    python -m benchmarks.curves --task guess --algorithms grpo "grpo --learner.min_lr_ratio 0"

An algorithm may bring flags of `agentrl train`. A run that has ended is not repeated and one that was stopped is
resumed, so the command may be stopped at any time and called again; `--minutes` stops it between runs. It writes
FIGURE.svg, FIGURE.json and FIGURE.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentrl.metrics.trackers import read_evaluations, read_steps
from agentrl.records.folder import RunFolder
from agentrl.report.summary import read
from benchmarks.learning import INK, RIGHT, WIDTH, Point, chart, curve, line, rows, y_of

GOAL = 0.7
SPENT = ("steps", "seconds")
COLORS = ("#0969da", "#bf8700", "#1a7f37", "#cf222e", "#8250df", "#57606a", "#bc4c00", "#0550ae")
TASKS = {
    "guess": ("--env", "guess", "--eval.every", "5", "--eval.samples", "8"),
    "math": ("--env", "math", "--eval.every", "5", "--eval.samples", "8"),
    "tools": ("--env", "functions", "--eval.every", "5", "--eval.samples", "8"),
}


@dataclass(frozen=True)
class Curve:
    """The runs of one algorithm, with its flags, that have ended, one per seed."""

    algorithm: str
    runs: tuple[Path, ...]

    @property
    def points(self) -> list[Point]:
        """Held-out pass@1 by step."""
        return curve(self.runs, lambda record: record.pass_at_1.mean)

    def to_goal(self) -> list[tuple[int, float] | None]:
        """Steps and seconds, without evaluations, until each seed first reaches GOAL; None if it does not."""
        return [_to_goal(RunFolder(run)) for run in self.runs]


def _to_goal(folder: RunFolder) -> tuple[int, float] | None:
    reached = next((e.step for e in read_evaluations(folder) if e.pass_at_1.mean >= GOAL), None)
    if reached is None:
        return None
    phases = (record.seconds for record in read_steps(folder) if record.step <= reached)
    return reached, sum(seconds.total - seconds.evaluate for seconds in phases)


def run_all(task: str, algorithms: Sequence[str], seeds: Sequence[int], out: Path, minutes: float) -> None:
    """Start or resume every run that has not ended, seed by seed, until the minutes are over."""
    ends_at = time.monotonic() + 60 * minutes
    for seed in seeds:
        for algorithm in algorithms:
            folder = folder_of(out, task, algorithm, seed)
            if has_ended(folder):
                continue
            if time.monotonic() > ends_at:
                return
            print(f"{folder}: {'resumed' if RunFolder(folder).is_training else 'started'}", flush=True)
            subprocess.run(["nice", sys.executable, "-m", "agentrl", *words(task, algorithm, seed, folder)], check=True)


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


def draw(curves: Sequence[Curve], title: str) -> str:
    """All curves as a stand-alone SVG."""
    body = "".join(
        f'{line(one.points, color)}<text x="{WIDTH - RIGHT}" y="{y_of(0.5) + 16 * n:.1f}" text-anchor="end" '
        f'fill="{color}">{one.algorithm}</text>'
        for n, (one, color) in enumerate(zip(curves, COLORS, strict=False))
    )
    longest = max((one.points for one in curves), key=len)
    return chart(title, INK, [point.step for point in longest], body, "steps")


def table(curves: Sequence[Curve]) -> Iterator[str]:
    """Yield the lines of a Markdown table: held-out scores, and steps and seconds to GOAL of each seed."""
    head = ("algorithm", "start", "end (95 % interval over seeds)", "best (step)", *(f"{x} to {GOAL}" for x in SPENT))
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for one in curves:
        first, last, reached = one.points[0].mean, one.points[-1].mean, one.to_goal()
        steps = ", ".join(str(found[0]) if found else "never" for found in reached)
        seconds = ", ".join(f"{found[1]:.0f}" if found else "never" for found in reached)
        best = max(one.points, key=lambda point: point.mean.mean)
        end, top = f"{last.mean:.3f} ({last.low:.3f} to {last.high:.3f})", f"{best.mean.mean:.3f} ({best.step})"
        yield f"| {one.algorithm} | {first.mean:.3f} | {end} | {top} | {steps} | {seconds} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=sorted(TASKS), default="math")
    parser.add_argument("--algorithms", nargs="+", required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("runs/curves"), help="folder of the run folders")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no run after so many minutes")
    parser.add_argument("--figure", type=Path, help="where figure and table go, without an ending")
    args = parser.parse_args()
    run_all(args.task, args.algorithms, args.seeds, args.out, args.minutes)
    ended = {name: [folder_of(args.out, args.task, name, seed) for seed in args.seeds] for name in args.algorithms}
    curves = [Curve(name, runs) for name, found in ended.items() if (runs := tuple(filter(has_ended, found)))]
    text = json.dumps({"task": args.task, "curves": {one.algorithm: rows(one.points) for one in curves}})
    print("\n".join(table(curves)))
    if args.figure and curves:
        args.figure.parent.mkdir(parents=True, exist_ok=True)
        args.figure.with_suffix(".svg").write_text(draw(curves, f"{args.task}: held-out pass@1, mean over seeds"))
        args.figure.with_suffix(".json").write_text(text + "\n")
        args.figure.with_suffix(".md").write_text("\n".join(table(curves)) + "\n")
    print(text)


if __name__ == "__main__":
    main()
