"""The learning curve of several runs that differ in their seed: held-out score by step, its mean and interval.

    python -m benchmarks.learning runs/seed-0 runs/seed-1 runs/seed-2 --out docs/learning/math

writes OUT.svg and OUT.json; the last line is the figures as JSON, as in OUT.json. Dots are runs, the band is Student's
t over seeds. Where the model has used tools, a second curve is the share of held-out episodes that used one.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentrl.metrics.statistics import Interval, Z
from agentrl.metrics.step import EvaluationRecord
from agentrl.metrics.trackers import read_evaluations
from agentrl.records.folder import RunFolder

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 360, 48, 40, 32, 16
# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom; beyond, the normal one with Fisher's term.
T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
INK, GRID, SCORE, TOOLS = "#57606a", "#d0d7de", "#0969da", "#bf8700"


@dataclass(frozen=True)
class Point:
    """The values of all seeds after `step`, and their mean with its interval."""

    step: int
    values: list[float]
    mean: Interval


Measure = Callable[[EvaluationRecord], float]


def curve(runs: Sequence[Path], measure: Measure) -> list[Point]:
    """One point for each step that every run evaluated."""
    return points_of([{e.step: measure(e) for e in read_evaluations(RunFolder(run))} for run in runs])


def points_of(by_run: Sequence[Mapping[int, float]]) -> list[Point]:
    """One point for each step of which every run has a value."""
    steps = sorted(set.intersection(*(set(values) for values in by_run)))
    return [Point(step, values := [run[step] for run in by_run], over_seeds(values)) for step in steps]


def over_seeds(scores: Sequence[float]) -> Interval:
    """The mean over independent runs with Student's t interval; a single run has none."""
    mean = statistics.fmean(scores)
    if len(scores) < 2:
        return Interval(mean, mean, mean, "none")
    freedom = len(scores) - 1
    quantile = T[freedom - 1] if freedom <= len(T) else Z + (Z**3 + Z) / (4 * freedom)
    half = quantile * statistics.stdev(scores) / math.sqrt(len(scores))
    return Interval(mean, mean - half, mean + half, "t")


def x_of(step: int, last: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * step / max(1, last)


def y_of(value: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(1.0, max(0.0, value)))


def line(points: Sequence[Point], color: str) -> str:
    """The mean, its band, and a dot for each seed."""
    at = [x_of(p.step, points[-1].step) for p in points]
    upper = [f"{x:.1f},{y_of(p.mean.high):.1f}" for x, p in zip(at, points, strict=True)]
    lower = [f"{x:.1f},{y_of(p.mean.low):.1f}" for x, p in zip(at, points, strict=True)]
    mean = " ".join(f"{x:.1f},{y_of(p.mean.mean):.1f}" for x, p in zip(at, points, strict=True))
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y_of(value):.1f}" r="3" fill="{color}" opacity="0.6"/>'
        for x, p in zip(at, points, strict=True)
        for value in p.values
    )
    return (
        f'<polygon points="{" ".join(upper + lower[::-1])}" fill="{color}" opacity="0.15"/>{dots}'
        f'<polyline points="{mean}" fill="none" stroke="{color}" stroke-width="2.5"/>'
    )


def draw(points: Sequence[Point], tools: Sequence[Point], title: str) -> str:
    """The curves as a stand-alone SVG."""
    legend = f'<text x="{WIDTH - RIGHT}" y="18" text-anchor="end" fill="{TOOLS}">episodes that use a tool</text>'
    below = legend + line(tools, TOOLS) if tools else ""
    steps = [point.step for point in points]
    return chart(title, SCORE if tools else INK, steps, line(points, SCORE), "optimizer steps", below)


def chart(title: str, color: str, steps: Sequence[int], body: str, axis: str, below: str = "") -> str:
    """A stand-alone SVG with a grid from 0 to 1 and marks at the steps; `below` is drawn under the grid."""
    grid = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_of(s):.1f}" y2="{y_of(s):.1f}" stroke="{GRID}"/>'
        f'<text x="{LEFT - 8}" y="{y_of(s) + 4:.1f}" text-anchor="end">{s:g}</text>'
        for s in (0, 0.2, 0.4, 0.6, 0.8, 1)
    )
    marks = "".join(
        f'<text x="{x_of(step, steps[-1]):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{step}</text>'
        for step in steps
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12" fill="{INK}"><rect width="100%" height="100%" fill="#ffffff"/>'
        f'<text x="{LEFT}" y="18" font-size="14" fill="{color}">{title}</text>'
        f"{below}{grid}{marks}{body}"
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{axis}</text></svg>\n'
    )


def rows(points: Sequence[Point]) -> list[dict[str, object]]:
    """The curve for a program to read."""
    return [
        {"step": p.step, "mean": p.mean.mean, "low": p.mean.low, "high": p.mean.high, "seeds": p.values} for p in points
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, one a seed")
    parser.add_argument("--out", type=Path, required=True, help="where the figure goes, without its ending")
    parser.add_argument("--title", default="held-out pass@1", help="title of the figure")
    arguments = parser.parse_args()
    points = curve(arguments.runs, lambda record: record.pass_at_1.mean)
    tools = curve(arguments.runs, lambda record: record.tool_use)
    if not any(any(point.values) for point in tools):
        tools = []
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.with_suffix(".svg").write_text(draw(points, tools, f"{arguments.title}, {len(arguments.runs)} seeds"))
    figure = {"title": arguments.title, "curve": rows(points)} | ({"tool_use": rows(tools)} if tools else {})
    text = json.dumps(figure)
    arguments.out.with_suffix(".json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
