"""Run the checks of this machine's GPUs, print a table for docs/verified.md, write the results as JSON lines.

Each check runs in a process of its own and is killed after its deadline. A check is skipped, with the reason, where the
machine lacks a GPU or a package. The exit code is 0 if none failed.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path

from agentrl.errors import did_you_mean
from verification import hardware, report, runner
from verification.catalogue import CHECKS
from verification.check import Check, Result


def main(checks: Sequence[Check] = CHECKS, words: Sequence[str] | None = None) -> int:
    """Run the command. Returns 1 if a check failed."""
    args = _parser().parse_args(words)
    unknown = [name for name in args.only if name not in {check.name for check in checks}]
    if unknown:
        print(f"unknown check {unknown[0]!r}.{did_you_mean(unknown[0], [c.name for c in checks])}", file=sys.stderr)
        return 2
    chosen = [check for check in checks if not args.only or check.name in args.only]
    if args.list:
        print(report.listed(chosen))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the running check is killed too
    ends_at = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    return int(any(result.state == "failed" for result in _run(chosen, ends_at, args.out)))


def _run(checks: Sequence[Check], ends_at: float, out: Path) -> list[Result]:
    """Print and write every result as soon as it is there, and the table at the end, even if that comes early."""
    here, day, results = hardware.detect(), date.today(), list[Result]()
    width = max(len(check.name) for check in checks)
    print(report.machine(here), flush=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with out.open("a") as file:
            for result in runner.run(checks, here, ends_at):
                results.append(result)
                print(report.line(result, width), flush=True)
                print(report.record(result, here, day), file=file, flush=True)
    finally:
        print(f"\n{report.rows(results, here, day)}\n\n{report.totals(results)}; details in {out}", flush=True)
    return results


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=report.COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="print the checks and what each needs")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="run this check; may be repeated")
    parser.add_argument("--minutes", type=float, help="time for all checks; those that do not fit are skipped")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(f"runs/verify-gpu-{datetime.now():%Y%m%d-%H%M%S}.jsonl"),
        metavar="FILE",
        help="file of the JSON lines (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
