"""`agentrl resume RUN`: go on from the last checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path

from agentrl.cli.ending import exit_code
from agentrl.cli.flags import split
from agentrl.cli.folders import trained_run
from agentrl.config.loading import of_flags, resumed
from agentrl.config.machine import detect
from agentrl.config.resolve import resolve_run
from agentrl.records.folder import RunFolder
from agentrl.training.resumption import check_resumable


def run(words: list[str]) -> int:
    """Resume the run in a folder, with the changes that a run allows."""
    parser = argparse.ArgumentParser(
        prog="agentrl resume",
        usage="agentrl resume RUN [--steps N] [--SECTION.KEY VALUE ...]",
        description="Go on with a run from its last checkpoint.",
        epilog="What a run does not learn from may change: how long it goes on, how often it is evaluated and saved, "
        "where its metrics go, its engines, its number of workers, and every deadline.",
        allow_abbrev=False,
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="the run folder")
    own, pairs = split(words)
    folder = trained_run(parser.parse_args(own).run)
    config = resolve_run(resumed(folder, of_flags(pairs)), detect(folder))
    check_resumable(RunFolder(folder), config.steps)
    from agentrl.training.inputs import RunInputs

    inputs = RunInputs.again(config, RunFolder(folder))
    inputs.tell()
    from agentrl.metrics.timer import process_began
    from agentrl.training.loop import resume

    return exit_code(lambda: resume(folder, config, inputs, process_began()))
