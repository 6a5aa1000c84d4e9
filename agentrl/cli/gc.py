"""`agentrl gc`: remove what killed runs left on this machine."""

from __future__ import annotations

from importlib import metadata

from agentrl.cli.flags import Parser
from agentrl.errors import catch_exit

CLEANUPS_GROUP = "agentrl.cleanups"
MEANING = """\
Remove what killed runs left on this machine: the processes, control groups, folders and containers of sandboxes whose
owner is gone, and what the cleanups of installed packages find. Running runs are not touched."""


def run(words: list[str]) -> int:
    """Run the cleanups that packages announce in the group `agentrl.cleanups`. Returns 1 if one of them fails.

    A cleanup is a callable without arguments that removes what no living process owns and returns a line per removal.
    """
    Parser(prog="agentrl gc", description=MEANING).parse_args(words)
    status = 0
    lines: list[str] = []
    for point in metadata.entry_points(group=CLEANUPS_GROUP):
        cleaned = catch_exit(lambda point=point: list(point.load()()))
        lines += cleaned.value or []
        if error := cleaned.error:
            status = 1
            lines.append(f"{point.name}: its cleanup {point.value} is broken: {type(error).__name__}: {error}")
    print("\n".join(lines) or "nothing was left behind")
    return status
