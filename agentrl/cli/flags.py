"""The flags of `train`, `eval` and `config`: ten short ones, and every key of the configuration by its dotted name."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from pydantic.fields import FieldInfo

from agentrl.config.keys import SHORT_FLAGS, key_of, keys, unset_of
from agentrl.config.loading import Setting, of_flags
from agentrl.config.values import expanded
from agentrl.errors import ConfigError

ENV, MODEL = "env", "model"
"""The flag whose value may stand alone after the command."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are ConfigErrors, which the command prints like any other."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError."""
        raise ConfigError(f"{message} (see `{self.prog} --help`)")


def path(text: str) -> Path:
    """Return a word of the command line as a path; argparse says which word is empty."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the path is empty")
    return expanded(text)


def whole(least: int) -> Callable[[str], int]:
    """Return the type of a flag: a whole number of at least `least`."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, got {text!r}")
        return int(text)

    return number


def positive(text: str) -> float:
    """Return a word of the command line as a finite number above 0."""
    with suppress(ValueError):
        if 0 < (number := float(text)) < math.inf:
            return number
    raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")


def parse(
    command: str,
    meaning: str,
    words: list[str],
    subject: str,
    flags: Mapping[str, str] = SHORT_FLAGS,
    parents: Sequence[Parser] = (),
) -> tuple[Path | None, list[Setting]]:
    """(the TOML file, the settings) of a command line; a word without a flag is the value of the flag `subject`.

    `--help` prints `flags`, a mapping of names to keys, with the options of `parents`, and exits.
    """
    parser = Parser(
        prog=f"agentrl {command}",
        usage=f"agentrl {command} [{subject.upper()}] [--config FILE] [--FLAG VALUE ...] [--SECTION.KEY VALUE ...]",
        description=meaning,
        epilog=_flag_help(flags),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=parents,
    )
    parser.add_argument("--config", type=path, metavar="FILE", help="TOML file with the same keys; flags override it")
    parser.add_argument("subject", nargs="?", metavar=subject.upper(), help=f"same as --{subject}")
    own, pairs = split(words)
    parsed = parser.parse_args(own)
    if parsed.subject is not None:
        if twice := [text for name, text in pairs if key_of(name) == SHORT_FLAGS[subject]]:
            raise ConfigError(f"{parsed.subject!r} and --{subject} {twice[0]} both name the {subject}: leave one out")
        pairs = [(subject, parsed.subject), *pairs]
    return parsed.config, of_flags(pairs)


def split(words: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """(words for argparse, (name, text) of every flag that sets a key)."""
    own: list[str] = []
    pairs: list[tuple[str, str]] = []
    rest = iter(words)
    for word in rest:
        name, equals, text = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name in ("help", "config"):
            own.append(word)
            own += islice(rest, 1 if word == "--config" else 0)
            continue
        value = text if equals else next(rest, "--")
        if not equals and value.startswith("--"):
            raise ConfigError(f"--{name} needs a value: --{name} VALUE (true or false for a switch)")
        pairs.append((name, value))
    return own, pairs


def own_options(words: list[str], sections: tuple[str, ...] = (ENV,)) -> tuple[list[str], list[tuple[str, str]]]:
    """(words for argparse, (key, text) of each `--SECTION.KEY VALUE`): for a command that has flags of its own."""
    own: list[str] = []
    pairs: list[tuple[str, str]] = []
    rest = iter(words)
    for word in rest:
        if word.startswith(tuple(f"--{section}." for section in sections)):
            pairs += split([word, *([] if "=" in word else [next(rest, "--")])])[1]
        else:
            own.append(word)
    return own, pairs


def _flag_help(flags: Mapping[str, str]) -> str:
    known, width = keys(), max(map(len, flags)) + 3
    lines = [f"  {f'--{flag}':<{width}} {_meaning(known[key])}" for flag, key in flags.items()]
    others = "Set any other key by its dotted name, as in --model.max_context 2048;\n`agentrl config` lists all keys."
    return "\n".join(["everyday flags (default):", *lines, "", others])


def _meaning(info: FieldInfo) -> str:
    unset = unset_of(info)
    return f"{info.description} ({unset.meaning if unset else info.default})"
