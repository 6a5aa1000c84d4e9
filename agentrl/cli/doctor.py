"""`agentrl doctor`: check this machine and say how to install what is missing."""

from __future__ import annotations

from agentrl.cli.flags import Parser
from agentrl.config.doctor import examine
from agentrl.config.machine import detect


def run(words: list[str]) -> int:
    """Print every check. Returns 1 if something that training needs is missing."""
    Parser(prog="agentrl doctor", description="Check this machine.").parse_args(words)
    checks = examine(detect())
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark = "ok" if check.is_ok else "MISSING" if check.is_needed else "-"
        print(f"{mark:<8} {check.name:<{width}}  {check.found}")
        if not check.is_ok and check.fix:
            print(f"{'':<8} {'':<{width}}  → {check.fix}")
    return int(any(check.is_needed and not check.is_ok for check in checks))
