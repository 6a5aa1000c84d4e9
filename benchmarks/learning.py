"""The learning curve of several runs that differ in their seed: held-out score by step, its mean and interval.

    python -m benchmarks.learning runs/seed-0 runs/seed-1 runs/seed-2 --out docs/learning/math

writes OUT.svg and OUT.json, and prints the latter as one line. Dots are runs, the band is Student's t over seeds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentrl.run.folder import RunFolder
from agentrl.run.metrics import read_evaluations
from agentrl.run.statistics import Interval, over_seeds

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 360, 48, 40, 32, 16
INK, GRID, LINE, DOT = "#57606a", "#d0d7de", "#0969da", "#8c959f"


@dataclass(frozen=True)
class Point:
    """The score of every seed after `step`, and their mean with its interval."""

    step: int
    scores: list[float]
    mean: Interval


def curve(runs: Sequence[Path]) -> list[Point]:
    """One point for each step that every run evaluated."""
    by_run = [{e.step: e.pass_at_1.mean for e in read_evaluations(RunFolder(run))} for run in runs]
    steps = sorted(set.intersection(*(set(scores) for scores in by_run)))
    return [Point(step, scores := [run[step] for run in by_run], over_seeds(scores)) for step in steps]


def draw(points: Sequence[Point], title: str) -> str:
    """The curve as a stand-alone SVG."""
    last = max(1, points[-1].step)

    def x(step: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last

    def y(score: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - score)

    grid = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(s):.1f}" y2="{y(s):.1f}" stroke="{GRID}"/>'
        f'<text x="{LEFT - 8}" y="{y(s) + 4:.1f}" text-anchor="end">{s:g}</text>'
        for s in (0, 0.2, 0.4, 0.6, 0.8, 1)
    )
    marks = "".join(
        f'<text x="{x(p.step):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{p.step}</text>' for p in points
    )
    upper = [f"{x(p.step):.1f},{y(min(1.0, p.mean.high)):.1f}" for p in points]
    lower = [f"{x(p.step):.1f},{y(max(0.0, p.mean.low)):.1f}" for p in reversed(points)]
    mean = " ".join(f"{x(p.step):.1f},{y(p.mean.mean):.1f}" for p in points)
    dots = "".join(
        f'<circle cx="{x(p.step):.1f}" cy="{y(s):.1f}" r="3" fill="{DOT}"/>' for p in points for s in p.scores
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12" fill="{INK}"><rect width="100%" height="100%" fill="#ffffff"/>'
        f'<text x="{LEFT}" y="18" font-size="14">{title}</text>{grid}{marks}'
        f'<polygon points="{" ".join(upper + lower)}" fill="{LINE}" opacity="0.15"/>{dots}'
        f'<polyline points="{mean}" fill="none" stroke="{LINE}" stroke-width="2.5"/>'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">optimizer steps</text></svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, one a seed")
    parser.add_argument("--out", type=Path, required=True, help="where the figure goes, without its ending")
    parser.add_argument("--title", default="held-out pass@1", help="what stands above the figure")
    arguments = parser.parse_args()
    points = curve(arguments.runs)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.with_suffix(".svg").write_text(draw(points, f"{arguments.title}, {len(arguments.runs)} seeds"))
    rows = [
        {"step": p.step, "mean": p.mean.mean, "low": p.mean.low, "high": p.mean.high, "seeds": p.scores} for p in points
    ]
    text = json.dumps({"title": arguments.title, "curve": rows})
    arguments.out.with_suffix(".json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
