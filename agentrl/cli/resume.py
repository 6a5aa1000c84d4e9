"""`agentrl resume RUN`: go on from the last checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path

from agentrl.cli.ending import exit_code
from agentrl.cli.folders import existing_run


def run(words: list[str]) -> int:
    """Resume the run in a folder."""
    parser = argparse.ArgumentParser(prog="agentrl resume", description="Go on with a run from its last checkpoint.")
    parser.add_argument("run", type=Path, metavar="RUN", help="the run folder")
    folder = existing_run(parser.parse_args(words).run)
    from agentrl.run.loop import resume

    return exit_code(lambda: resume(folder))
