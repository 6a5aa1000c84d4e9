"""Results in words: a line for each check as it ends, Markdown rows for docs/verified.md, and JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import date

from verification.check import Check, Result
from verification.hardware import Hardware

COMMAND = "scripts/verify-gpu"
HEAD = "| date | hardware | command | figure |\n|---|---|---|---|"


def machine(hardware: Hardware) -> str:
    """Return one line about the machine."""
    gpus = [
        f"{gpu.memory_gib:.0f} GiB, compute capability {'.'.join(map(str, gpu.capability))}" for gpu in hardware.gpus
    ]
    first = f"{hardware} ({'; '.join(dict.fromkeys(gpus))})" if gpus else f"no GPU: {hardware.why_none}"
    return " · ".join((first, *(f"{name} {version}" for name, version in hardware.versions.items())))


def listed(checks: Sequence[Check]) -> str:
    """Return a table of checks: name, what each proves and needs."""
    width = max(len(check.name) for check in checks)
    return "\n".join(f"{check.name:<{width}}  {check.proves} [{check.needs}]" for check in checks)


def line(result: Result, width: int) -> str:
    """Return the line that is printed when a check ends."""
    seconds = f"{result.seconds:.1f} s" if result.seconds else ""
    return f"{result.state:<8}{result.check:<{width}} {seconds:>8}  {result.words}"


def rows(results: Iterable[Result], hardware: Hardware, day: date) -> str:
    """Return the results that passed as rows of the last table in docs/verified.md."""
    passed = [result for result in results if result.state == "passed"]
    made = [(str(day), str(hardware), f"`{COMMAND} --only {result.check}`", _cell(result.words)) for result in passed]
    return "\n".join((HEAD, *(f"| {' | '.join(row)} |" for row in made)))


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|")


def record(result: Result, hardware: Hardware, day: date) -> str:
    """Return a result as a line of JSON."""
    about = {"date": str(day), "hardware": str(hardware), "versions": hardware.versions}
    return json.dumps({**asdict(result), "seconds": round(result.seconds, 1), **about}, ensure_ascii=False)


def totals(results: Sequence[Result]) -> str:
    """Return the number of results by state."""
    counts = {state: sum(result.state == state for result in results) for state in ("passed", "failed", "skipped")}
    return ", ".join(f"{count} {state}" for state, count in counts.items())
