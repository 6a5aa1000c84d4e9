"""`agentrl show RUN [SAMPLE]`: the trajectories of a run, or one of them in full."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from rich.console import Console

from agentrl.config.loading import load
from agentrl.config.models import locate
from agentrl.errors import ConfigError
from agentrl.records.folder import RunFolder, existing_run
from agentrl.report.show import show
from agentrl.report.transcript import Decode, decoder

SAMPLE = "group-member, as in 12-3 (12-3.1: its second attempt; 40/12-3: of the evaluation after step 40); else a list"


def run(words: list[str]) -> int:
    """Print a line for each trajectory, or everything about one."""
    parser = argparse.ArgumentParser(prog="agentrl show", description="Look at the trajectories of a run.")
    parser.add_argument("run", type=Path, metavar="RUN", help="the run folder")
    parser.add_argument("sample", nargs="?", metavar="SAMPLE", help=SAMPLE)
    arguments = parser.parse_args(words)
    folder = existing_run(arguments.run)
    Console(highlight=False).print(show(folder, arguments.sample, partial(_decoder, folder)))
    return 0


def _decoder(folder: Path) -> Decode | None:
    """The run's tokenizer; None, and tokens are shown as ids, when its model is gone."""
    try:
        return decoder(locate(load(RunFolder(folder).config).model.name))
    except ConfigError:
        return None
