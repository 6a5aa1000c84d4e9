"""`agentrl env init NAME`: begin an environment package."""

from __future__ import annotations

from pathlib import Path

from agentrl.cli.flags import Parser
from agentrl.packaging.scaffold import FLAGS, TEMPLATES, PackageName, write_package

MEANING = """\
Write the package of a new environment into ./NAME. It passes its own tests and trains at once; replace its tasks and
rewards by yours."""


def run(words: list[str]) -> int:
    """Write the files, and print what to do next."""
    parser = Parser(prog="agentrl env init", description=MEANING)
    parser.add_argument("name", metavar="NAME", help="NAME, or OWNER/NAME if others may have one of the same name")
    kinds = "; ".join(f"{name}: {what}" for name, what in TEMPLATES.items())
    parser.add_argument("--template", choices=list(TEMPLATES), default="single", help=f"{kinds} (single)")
    given = parser.parse_args(words)
    name = PackageName.parse(given.name)
    for path in write_package(name, given.template, Path(name.name)):
        print(f"wrote {path}")
    commands = {
        f"agentrl train --env ./{name.name}{FLAGS.get(given.template, '')}": "train in it",
        f"pip install -e './{name.name}[test]'": f"announce it as {name.announced}, with what its tests need",
        f"python -m pytest {name.name}": "run its tests",
    }
    width = max(map(len, commands))
    print("", *(f"{command:{width}}   {what}" for command, what in commands.items()), sep="\n")
    return 0
