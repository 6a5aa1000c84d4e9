"""The flags that `train`, `eval` and `config` share: ten short ones, and every key of the configuration by its name."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from pydantic.fields import FieldInfo

from agentrl.config.loading import SHORT_FLAGS, Settings, keys, meaning_of, read
from agentrl.errors import ConfigError

ENV, MODEL = "env", "model"
"""What may stand without its flag behind a command."""


def parse(command: str, meaning: str, words: list[str], subject: str) -> Settings:
    """The settings that a command line asks for; --help prints the flags and exits."""
    return read(*asked(command, meaning, words, subject))


def asked(
    command: str, meaning: str, words: list[str], subject: str, flags: Mapping[str, str] = SHORT_FLAGS
) -> tuple[Path | None, list[tuple[str, str]]]:
    """(the TOML file, the flags) of a command line; a word without a flag is the value of the flag `subject`.

    The help shows `flags`, each by its name with its key: those that the command is for.
    """
    parser = argparse.ArgumentParser(
        prog=f"agentrl {command}",
        usage=f"agentrl {command} [{subject.upper()}] [--config FILE] [--FLAG VALUE ...] [--SECTION.KEY VALUE ...]",
        description=meaning,
        epilog=_flag_help(flags),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file with the same keys; flags win")
    parser.add_argument("subject", nargs="?", metavar=subject.upper(), help=f"the same as --{subject}")
    own, overrides = split(words)
    given = parser.parse_args(own)
    if given.subject is not None:
        _refuse_two(given.subject, subject, overrides)
        overrides = [(subject, given.subject), *overrides]
    return given.config, overrides


def _refuse_two(word: str, subject: str, overrides: list[tuple[str, str]]) -> None:
    if twice := [text for name, text in overrides if SHORT_FLAGS.get(name, name) == SHORT_FLAGS[subject]]:
        raise ConfigError(f"{word!r} and --{subject} {twice[0]} both name the {subject}: leave one out")


def split(words: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """(words for argparse, (name, text) of every flag that sets a key)."""
    own: list[str] = []
    overrides: list[tuple[str, str]] = []
    rest = iter(words)
    for word in rest:
        name, equals, text = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name in ("help", "config"):
            own.append(word)
            own += [next(rest, "")] if word == "--config" else []
            continue
        value = text if equals else next(rest, "--")
        if not equals and value.startswith("--"):
            raise ConfigError(f"--{name} needs a value: --{name} VALUE (true or false for a switch)")
        overrides.append((name, value))
    return own, overrides


def _flag_help(flags: Mapping[str, str]) -> str:
    known, width = keys(), max(map(len, flags)) + 3
    lines = [f"  {f'--{flag}':<{width}} {meaning_of(known[key])}{_default(known[key])}" for flag, key in flags.items()]
    example = (
        "Every other setting by its dotted name, as in --model.max_context 2048;\n`agentrl config` lists them all."
    )
    return "\n".join(["everyday flags (default):", *lines, "", example])


def _default(info: FieldInfo) -> str:
    return "" if info.default in (None, "") else f" ({info.default})"
