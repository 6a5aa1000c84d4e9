"""`agentrl gc`: remove what killed runs have left behind on this machine."""

from __future__ import annotations

import argparse
from importlib import metadata

from agentrl.errors import catch_exit

CLEANUPS_GROUP = "agentrl.cleanups"


def run(words: list[str]) -> int:
    """Call what packages announce in the group `agentrl.cleanups`; 1 when one of them cannot be called.

    A cleanup is a callable without arguments that removes what nobody owns any more and gives a line for each thing.
    """
    argparse.ArgumentParser(prog="agentrl gc", description="Remove what killed runs left behind.").parse_args(words)
    status = 0
    lines: list[str] = []
    for point in metadata.entry_points(group=CLEANUPS_GROUP):
        said = catch_exit(lambda point=point: list(point.load()()))
        lines += said.value or []
        if error := said.error:
            status = 1
            lines.append(f"{point.name}: its cleanup {point.value} is broken: {type(error).__name__}: {error}")
    print("\n".join(lines) or "nothing was left behind")
    return status
