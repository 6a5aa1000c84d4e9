"""`agentrl env list`: the installed and the added environments, and whether they can run on this machine."""

from __future__ import annotations

from collections.abc import Iterator

from agentrl.cli.flags import Parser
from agentrl.env.adapter import ADAPTERS
from agentrl.env.registry import ENVIRONMENTS
from agentrl.packaging.added import added
from agentrl.packaging.description import listed
from agentrl.plugins import registry
from agentrl.report.words import visible

NONE = "no environment is installed: pip install agentrl-env-NAME, or write one with `agentrl env init NAME`"


def run(words: list[str]) -> int:
    """Print each environment with its owner, version, distribution, description and needs; adapters; added ones."""
    Parser(prog="agentrl env list", description="List the installed and added environments.").parse_args(words)
    blocks = [*_installed(), *_adapters(), *_added()]
    width = max((len(name) for name, _ in blocks), default=0)
    for name, lines in blocks:
        for number, line in enumerate(lines):
            print(visible(f"{'' if number else name:<{width}}  {line}"))
    if not blocks:
        print(NONE)
    for skipped in registry.misnamed(ENVIRONMENTS):
        print(visible(skipped))
    return 0


def _installed() -> Iterator[tuple[str, list[str]]]:
    for item in listed():
        owner = item.announced.name.rpartition("/")[0] or "-"
        origin = f"{item.announced.version}  {item.announced.distribution}  (owner: {owner})"
        yield item.announced.name, [origin, item.summary or "no description", f"this machine: {item.machine}"]


def _adapters() -> Iterator[tuple[str, list[str]]]:
    for scheme, item in sorted(registry.announced(ADAPTERS).items()):
        yield f"{scheme}:ID", [f"{item.version}  {item.distribution}  (adapter)"]


def _added() -> Iterator[tuple[str, list[str]]]:
    for item in added():
        record = item.record
        for label in item.labels:
            origin = f"{record.version}  {record.distribution}  (added)"
            yield label, [origin, record.summary or "no description", f"interpreter: {item.python} ({record.python})"]
