"""`agentrl env lock`: pin environments and the interpreter's packages in a file."""

from __future__ import annotations

from pathlib import Path

from agentrl.cli.flags import Parser, own_options, path
from agentrl.config.loading import load, of_flags
from agentrl.config.validate import counted
from agentrl.errors import ConfigError
from agentrl.packaging.added import with_interpreters
from agentrl.packaging.lock import write_lock

MEANING = """\
Write the versions and hashes of environments, of what they wrap, and of the interpreter's packages into a file.
`agentrl train --env-lock FILE` refuses to run where anything differs."""


def run(words: list[str]) -> int:
    """Write the lock, and print what it contains."""
    parser = Parser(
        prog="agentrl env lock",
        usage="agentrl env lock [NAME ... [--env.KEY FILE ...] | --config FILE] [--out FILE]",
        description=MEANING,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="environments (default: every installed or added one)")
    parser.add_argument("--config", type=path, metavar="FILE", help="TOML file of a run: lock its environments")
    parser.add_argument(
        "--out", type=path, default=Path("agentrl.lock"), metavar="FILE", help="the file (agentrl.lock)"
    )
    own, pairs = own_options(words, ("env",))
    given = parser.parse_args(own)
    if given.config and (given.names or pairs):
        raise ConfigError(f"{given.config} names the environments and their keys: give no others beside --config")
    if pairs and not given.names:
        raise ConfigError("--env.KEY needs the name of its environment: agentrl env lock NAME --env.KEY FILE")
    named = [("env", ",".join(given.names)), *pairs] if given.names else []
    envs = with_interpreters(load(given.config, of_flags(named))).env if named or given.config else ()
    lock = write_lock(given.out, envs, must_name_files=bool(named))
    held = f"{counted(len(lock.environments), 'environment')}, {counted(len(lock.packages), 'package')}"
    print(f"wrote {given.out}: {held}")
    return 0
