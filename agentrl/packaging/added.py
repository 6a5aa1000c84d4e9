"""Environments that `agentrl env add` installed, each version in a virtual environment of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from agentrl.config.schema import Config, EnvSection
from agentrl.env.adapter import ADAPTERS, scheme_of
from agentrl.env.registry import ENVIRONMENTS
from agentrl.errors import ConfigError
from agentrl.packaging.inspection import Offer, offer_of
from agentrl.plugins import registry
from agentrl.plugins.files import is_path
from agentrl.plugins.kind import Kind
from agentrl.records.jsonl import read_json

VENV, PYTHON = "venv", "venv/bin/python"
RECORD = "added.json"
"""Written last: a folder without it is no added environment."""


@dataclass(frozen=True, slots=True)
class Download:
    """A distribution that pip installed, and the sha256 of its wheel or archive; empty for a folder."""

    name: str
    version: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Record:
    """What `env add` installed."""

    distribution: str
    version: str
    summary: str
    offers: tuple[Offer, ...]
    """Every environment and scheme that the interpreter announces."""
    python: str
    """The version of the interpreter."""
    downloads: tuple[Download, ...]

    def __post_init__(self) -> None:
        Version(self.version)  # raises ValueError


@dataclass(frozen=True, slots=True)
class Added:
    """An added environment and the folder of its virtual environment."""

    folder: Path
    record: Record

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / PYTHON

    @property
    def own_offers(self) -> tuple[Offer, ...]:
        """What its own distribution announces: another one may be there because it is required."""
        return tuple(offer for offer in self.record.offers if offer.distribution == self.record.distribution)

    @property
    def labels(self) -> list[str]:
        """What `--env` takes: the names and schemes of its own distribution."""
        return [f"{offer.name}:ID" if offer.is_scheme else offer.name for offer in self.own_offers]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The meaning of a name: that of an environment or of a scheme, and PEP 440 specifiers, empty for any version."""

    name: str
    specifiers: SpecifierSet
    is_scheme: bool

    @classmethod
    def parse(cls, text: str) -> Wanted:
        """Parse NAME, NAME@1.2, NAME==1.2.3, SCHEME:ID or SCHEME:ID@1.2, whose version is that of what is wrapped.

        Raises ConfigError for a version that is none.
        """
        scheme, wanted = scheme_of(text), text.partition(":")[2]
        bare, version = registry.split_version(wanted if scheme else text)
        specifiers = registry.specifiers(f"environment {text!r}", "" if scheme and "://" in wanted else version)
        return cls(scheme or bare, specifiers, bool(scheme))

    def is_met_by(self, offer: Offer) -> bool:
        """Return whether this is what it means."""
        is_named = offer.is_scheme == self.is_scheme and registry.is_called(self.name, offer.name, offer.distribution)
        is_any = not str(self.specifiers)
        return is_named and (
            is_any or (bool(offer.version) and self.specifiers.contains(offer.version, prereleases=True))
        )

    def chosen(self, offered: Sequence[tuple[Added, str]]) -> list[Added]:
        """Return those of what meets it, with its versions, that PEP 440 prefers.

        An equal version comes before others that `==` accepts (`0.1+local`), and pre-releases only count alone.
        """
        pinned = {
            Version(each.version) for each in self.specifiers if each.operator == "==" and "*" not in each.version
        }
        if equal := [item for item, version in offered if version and Version(version) in pinned]:
            return equal
        preferred = {"", *self.specifiers.filter(version for _, version in offered if version)}
        return [item for item, version in offered if version in preferred]


def home() -> Path:
    """Return the folder of all added environments: `envs` in $AGENTRL_HOME, else in agentrl's folder for data (XDG)."""
    data = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share")
    return (Path(os.environ.get("AGENTRL_HOME") or data / "agentrl").expanduser() / "envs").absolute()


def added() -> list[Added]:
    """Return every added environment, by distribution and version. Raises RunError for a damaged record."""
    remedy = "delete its folder, and add the environment again"
    found = ((file.parent, read_json(file, Record, remedy)) for file in home().glob(f"*/{RECORD}"))
    every = [Added(folder, record) for folder, record in found if record]
    return sorted(every, key=lambda item: (item.record.distribution, Version(item.record.version)))


def with_interpreters(config: Config) -> Config:
    """Return the configuration in which `env.python` names the interpreter of every added environment.

    An environment of this interpreter comes first if it has the wanted version. Otherwise it is the newest added one
    that has, final releases first; if there is none, the name stays for `resolve`, which says what to do. One that was
    removed since a run began is looked for again. Raises ConfigError if distributions of several owners are meant.
    """
    return config.model_copy(update={"env": tuple(map(_located, config.env))})


def _located(section: EnvSection) -> EnvSection:
    was_removed = section.python and home() in section.python.parents and not section.python.exists()
    python = interpreter_of(section.name) if was_removed or not section.python else None
    return section.model_copy(update={"python": python}) if python else section


def interpreter_of(name: str) -> Path | None:
    """Return the interpreter of the added environment that `--env name` means, None if it means another one.

    Raises UnknownNameError for a name that no environment has.
    """
    wanted = None if is_path(name) else Wanted.parse(name)
    if wanted is None or _is_here(wanted):
        return None
    every = added()
    offered = [(item, offer.version) for item in every for offer in item.own_offers if wanted.is_met_by(offer)]
    if not offered:
        _refuse_unknown(name, wanted, every)
    owners = sorted({item.record.distribution for item, _ in offered})
    if len(owners) > 1:
        raise ConfigError(
            f"environment {name!r}: {' and '.join(owners)} are added and announce it; write OWNER/{wanted.name}, or "
            "remove one with `agentrl env remove`"
        )
    return wanted.chosen(offered)[-1].python if offered else None


def _refuse_unknown(name: str, wanted: Wanted, every: list[Added]) -> None:
    """Raise ConfigError for what is known neither here nor as added, and for what was added in other versions alone."""
    if wanted.is_scheme or registry.TARGET.fullmatch(name):
        return
    of_any = replace(wanted, specifiers=SpecifierSet())
    if others := [item.record for item in every if any(map(of_any.is_met_by, item.own_offers))]:
        versions = ", ".join(f"{one.distribution} {one.version}" for one in others)
        raise ConfigError(f"environment {name!r}: of it {versions} is added; add that version with `agentrl env add`")
    registry.find(ENVIRONMENTS, wanted.name, [label for item in every for label in item.labels])


def _is_here(wanted: Wanted) -> bool:
    """Return whether this interpreter has it: announced in the wanted version, or a module (`module:Class`)."""
    kind: Kind[Any] = ADAPTERS if wanted.is_scheme else ENVIRONMENTS
    item = registry.known(kind, wanted.name)
    if item is None:
        return wanted.is_scheme and find_spec(wanted.name) is not None
    return bool(item.rival) or not str(wanted.specifiers) or wanted.is_met_by(offer_of(kind, item))
