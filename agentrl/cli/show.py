"""`agentrl show RUN [SAMPLE]`: list the trajectories of a run, or show one in full."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rich.console import Console

from agentrl.cli.flags import Parser, path
from agentrl.config.loading import load
from agentrl.config.models import locate
from agentrl.errors import ConfigError
from agentrl.records.folder import RunFolder, existing_run
from agentrl.report.show import show
from agentrl.report.transcript import Decode, decoder

SAMPLE = (
    "a sample such as 12-3 (group-member), 12-3.1 (its second attempt) or 40/12-3 (in the evaluation after step 40); "
    "default: list the newest"
)


def run(words: list[str]) -> int:
    """Print a line for each trajectory, or one in full."""
    description = "List the trajectories of a run, or show one in full."
    parser = Parser(prog="agentrl show", description=description)
    parser.add_argument("run", type=path, metavar="RUN", help="the run folder")
    parser.add_argument("sample", nargs="?", metavar="SAMPLE", help=SAMPLE)
    arguments = parser.parse_args(words)
    folder = existing_run(arguments.run)
    Console(highlight=False).print(show(folder, arguments.sample, partial(_decoder, folder)))
    return 0


def _decoder(folder: Path) -> Decode | None:
    """Return the tokenizer of the run, None if its model no longer exists: tokens are then shown as ids."""
    try:
        return decoder(locate(load(RunFolder(folder).config).model.name))
    except ConfigError:
        return None
