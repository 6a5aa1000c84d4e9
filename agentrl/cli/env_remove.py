"""`agentrl env remove NAME`: remove an environment that `agentrl env add` installed."""

from __future__ import annotations

from agentrl.cli.flags import Parser
from agentrl.packaging.adding import remove


def run(words: list[str]) -> int:
    """Remove one added environment with its interpreter."""
    parser = Parser(prog="agentrl env remove", description="Remove an added environment with its interpreter.")
    parser.add_argument("name", metavar="NAME[==VERSION]", help="the environment, or its distribution")
    item = remove(parser.parse_args(words).name)
    print(f"removed {item.record.distribution} {item.record.version}")
    return 0
