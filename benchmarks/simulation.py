"""Simulated and real step times side by side: of a run's second half, and of runs with one setting changed.

python -m benchmarks.simulation [--steps 16] [--changes rollout.group_size=16 rollout.max_staleness=1] [--env math ...];
the last line is the figures as JSON. Other flags are those of `agentrl train`. It trains once and calibrates the
simulation by the first half of the steps, which predicts the second half; by every other step, which predicts those
between, so that what the policy has learned meanwhile plays no part; and by all of them, which predicts a new run for
each change. All are predicted again with their own episodes (`replayed`), because the policy changes while it learns,
and a changed run learns something else. Run it on a quiet machine: a simulation knows only what was recorded.
`error` is that of the mean step. Runs that have ended in the folder `--out` are not repeated.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agentrl.config.loading import of_flags
from agentrl.metrics.step import StepRecord
from agentrl.planning.simulation.calibration import calibrate
from agentrl.planning.simulation.changes import changed
from agentrl.planning.simulation.forecast import StepTimes, forecast
from agentrl.planning.simulation.recorded import RecordedRun, read
from agentrl.planning.simulation.words import PHASES, row
from agentrl.planning.simulation.workload import RecordedGroup
from agentrl.records.folder import RunFolder
from agentrl.report import summary
from benchmarks.timing import last_line

Figures = dict[str, object]


def trained(folder: Path, args: argparse.Namespace, change: str = "") -> RecordedRun:
    """Train in `folder`, with a setting changed, unless a run has ended there, and read the run."""
    flags = ["--steps", str(args.steps), "--eval.tasks", "0", "--checkpoint.every", "0", *args.flags]
    flags += [f"--{change}"] if change else []
    if summary.read(RunFolder(folder)) is None:
        subprocess.run([sys.executable, "-m", "agentrl", "train", *flags, "--out", str(folder)], check=True)
    return read(folder)


def predicted(
    run: RecordedRun, by: Sequence[StepRecord], change: str = "", groups: Sequence[RecordedGroup] = ()
) -> StepTimes:
    """Simulate the run, with a setting changed, by some of its steps, with these groups instead of theirs if given."""
    key, _, text = change.partition("=")
    changes = {setting.key: setting.value for setting in of_flags([(key, text)] if change else [])}
    calibration = calibrate(run, by)
    if groups:
        calibration = replace(calibration, groups=tuple(groups))
    return forecast(calibration, changed(run.config, changes)).times


def compared(name: str, real: Sequence[StepRecord], simulated: StepTimes) -> Figures:
    """Print real and simulated times side by side, and return them."""
    measured = StepTimes.of([step.seconds for step in real])
    print(f"\n{name}, {measured.steps} steps\n{row('', 'real', 'simulated', 'error')}")
    pairs = {"step": (measured.mean_s, simulated.mean_s), "90 %": (measured.p90_s, simulated.p90_s)}
    pairs |= {phase: (getattr(measured.phases, phase), getattr(simulated.phases, phase)) for phase in PHASES}
    for what, (real_s, simulated_s) in pairs.items():
        print(row(what, f"{real_s:.2f} s", f"{simulated_s:.2f} s", f"{simulated_s / max(1e-9, real_s) - 1:+.1%}"))
    sides = {what: {"real_s": pair[0], "simulated_s": pair[1]} for what, pair in pairs.items()}
    return {"error": simulated.mean_s / measured.mean_s - 1, **sides}


def measure(args: argparse.Namespace, out: Path) -> Figures:
    """Train, calibrate, predict, and train again for each change."""
    base = trained(out / "base", args)
    plain = base.plain_steps
    first, second = plain[: len(plain) // 2], plain[len(plain) // 2 :]
    others = {change: trained(out / change, args, change) for change in args.changes}
    predictions = [
        ("second half", base, second, first, ""),
        ("every other step", base, plain[1::2], plain[::2], ""),
        *((change, run, run.plain_steps, plain, change) for change, run in others.items()),
    ]
    found: Figures = {}
    for name, run, steps, by, change in predictions:
        found[name] = compared(name, steps, predicted(base, by, change))
        replayed = f"{name}, replayed"
        found[replayed] = compared(replayed, steps, predicted(base, by, change, run.groups(steps)))
    return {"model": base.config.model.name, "flags": " ".join(args.flags), "steps": args.steps, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--changes", nargs="*", default=["rollout.group_size=16", "rollout.max_staleness=1"])
    parser.add_argument("--out", type=Path, help="folder of the run folders, kept (default: one that is removed)")
    args, flags = parser.parse_known_args()
    args.flags = flags
    with tempfile.TemporaryDirectory() as scratch:
        print(last_line("simulation", measure(args, args.out or Path(scratch))))


if __name__ == "__main__":
    main()
