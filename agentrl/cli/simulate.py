"""`agentrl plan --simulate RUN`: predict the steps of a recorded run with other settings or on other hardware."""

from __future__ import annotations

import msgspec

from agentrl.cli.flags import Parser, own_options, path, whole
from agentrl.config.loading import of_flags
from agentrl.errors import ConfigError

USAGE = "agentrl plan --simulate RUN [--gpus N | --cores N] [--json] [--SECTION.KEY VALUE ...]"
MEANING = """\
Simulate a recorded run: its second half by its first, then with other settings, or on other hardware. --gpus and
--cores search for the number of engines, learner ranks and workers, and for the max_staleness, that train the most
samples per second. Settings that you give are kept; --rollout.max_staleness is then the largest one."""
SECTIONS = ("rollout", "engine", "learner")


def run(words: list[str]) -> int:
    """Print the simulation of a run."""
    parser = Parser(prog="agentrl plan", usage=USAGE, description=MEANING)
    parser.add_argument("--simulate", type=path, required=True, metavar="RUN", help="the folder of a recorded run")
    parser.add_argument(
        "--gpus", type=whole(1), metavar="N", help="find the best layout on N GPUs of the recorded kind"
    )
    parser.add_argument("--cores", type=whole(1), metavar="N", help="find the best layout on N CPU cores")
    parser.add_argument("--json", action="store_true", help="print the figures as one line of JSON")
    own, pairs = own_options(words, SECTIONS)
    given = parser.parse_args(own)
    if given.gpus and given.cores:
        raise ConfigError("a run is on GPUs or on CPUs: give either --gpus or --cores")
    from agentrl.planning.simulation.search import Hardware
    from agentrl.planning.simulation.words import lines, report

    changes = {setting.key: setting.value for setting in of_flags(pairs)}
    hardware = Hardware(given.gpus or 0, given.cores or 0) if given.gpus or given.cores else None
    found = report(given.simulate, changes, hardware)
    print(msgspec.json.encode(found).decode() if given.json else "\n".join(lines(found)))
    return 0
