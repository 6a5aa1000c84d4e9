"""`agentrl env COMMAND`: finds the command for environments and runs it."""

from __future__ import annotations

import argparse
from importlib import import_module

from agentrl.cli.flags import Parser
from agentrl.errors import UnknownNameError

COMMANDS = {
    "init": "write the package of a new environment",
    "list": "list the installed environments",
    "show": "show the keys, limits, rewards, tools and tasks of one",
    "check": "check an environment and say what to fix",
    "add": "install one into an interpreter of its own",
    "remove": "remove one that was added",
    "publish": "check and build a package, and say what to upload",
    "reverify": "score a run's trajectories with another version of their verifier",
    "eval": "score a model on the held-out tasks of one",
    "serve": "serve one to clients of OpenEnv, or to runs on other machines",
    "lock": "pin environments and packages in a file that runs can require",
}
"""Each command is the module agentrl.cli.env_NAME."""


def run(words: list[str]) -> int:
    """Run one command on environments."""
    parser = Parser(
        prog="agentrl env",
        usage="agentrl env COMMAND [options]",
        description="\n".join(["commands:", *(f"  {name:<8} {what}" for name, what in COMMANDS.items())]),
        epilog="Run `agentrl env COMMAND --help` for its options.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", metavar="COMMAND", help=argparse.SUPPRESS)
    command = parser.parse_args(words[:1] or ["--help"]).command
    if command not in COMMANDS:
        raise UnknownNameError("command of agentrl env", command, COMMANDS)
    status: int = import_module(f"agentrl.cli.env_{command}").run(words[1:])
    return status
