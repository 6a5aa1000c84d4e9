"""`agentrl env add NAME|WHEEL|PATH`: install an environment into an interpreter of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from agentrl.cli.flags import Parser
from agentrl.packaging.adding import Request, add

MEANING = """\
Install one version of an environment, with pip, into a virtual environment of its own. `--env NAME==VERSION` then runs
it in that interpreter, beside other versions and beside packages that clash with its requirements."""
SEARCH = {"--index-url": "URL", "--extra-index-url": "URL", "--find-links": "PATH", "--no-index": None, "--pre": None}
"""Options of `pip install` that say where it searches: their values, None for a switch."""


def run(words: list[str]) -> int:
    """Add the environment, and print its names and its interpreter."""
    parser = Parser(prog="agentrl env add", description=MEANING)
    parser.add_argument(
        "name", metavar="NAME|WHEEL|PATH", help="NAME, OWNER/NAME (both with a version or without), a wheel or a folder"
    )
    parser.add_argument(
        "--with", dest="beside", action="append", default=[], metavar="REQUIREMENT",
        help="install this package beside it, such as what an adapter wraps; may be given repeatedly",
    )  # fmt: skip
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="make it of this interpreter")
    for option, value in SEARCH.items():
        kind: dict[str, Any] = {"action": "append", "metavar": value} if value else {"action": "store_true"}
        parser.add_argument(option, **kind, help="as for pip install")
    given = parser.parse_args(words)
    print(f"installing {given.name} into an interpreter of its own; this may take minutes", flush=True)
    item = add(Request(given.name, tuple(given.beside), given.python, tuple(_for_pip(vars(given)))))
    print(f"added {item.record.distribution} {item.record.version}: --env {' or '.join(item.labels)}")
    print(f"interpreter: {item.python} (Python {item.record.python}, {len(item.record.downloads)} packages)")
    return 0


def _for_pip(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of pip."""
    for option, takes in SEARCH.items():
        value = given[option.removeprefix("--").replace("-", "_")]
        if takes:
            yield from (word for text in value or () for word in (option, text))
        elif value:
            yield option
