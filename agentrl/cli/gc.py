"""`agentrl gc [RUN ...]`: remove what killed runs left on this machine, or on those of a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from agentrl.cli.flags import Parser, path
from agentrl.cluster.leftovers import Collected, collect
from agentrl.records.folder import existing_run, run_lock

MEANING = """\
Remove what killed runs left on this machine and, where RAY_ADDRESS names a cluster, on every machine of it: the
processes, control groups, folders and containers of sandboxes whose owner is gone, what the cleanups of installed
packages find, and what the given runs started. Running runs are not touched."""
REMOTE_S = 60.0


def run(words: list[str]) -> int:
    """Print what was removed. Returns 1 if something could not be removed or a machine does not answer."""
    parser = Parser(prog="agentrl gc", description=MEANING)
    parser.add_argument("runs", type=path, nargs="*", metavar="RUN", help="the folder of a run that was killed")
    runs = [existing_run(folder).absolute() for folder in parser.parse_args(words).runs]
    with ExitStack() as locks:
        for folder in runs:
            locks.enter_context(run_lock(folder))
        found = [collect(runs), *_elsewhere(runs)]
    print("\n".join(line for each in found for line in each.lines) or "nothing was left behind")
    return int(any(each.has_failed for each in found))


def _elsewhere(runs: Sequence[Path]) -> Iterator[Collected]:
    """Collect on the other machines of the cluster, if there is one."""
    if not os.environ.get("RAY_ADDRESS"):
        return
    from agentrl.cluster.ray.nodes import on_other_machines

    for node, found in on_other_machines(collect, runs, deadline_s=REMOTE_S):
        if isinstance(found, Collected):
            yield Collected(tuple(f"{node.name}: {line}" for line in found.lines), found.has_failed)
        else:
            yield Collected((f"{node}: not cleaned up: {found}",), has_failed=True)
