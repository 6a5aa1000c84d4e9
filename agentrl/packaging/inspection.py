"""Contents of an interpreter: the environments and schemes that it announces, and the source of one of them.

`python -m agentrl.packaging.inspection DESCRIPTOR [NAME]` writes them to the descriptor as JSON. For another
interpreter it is called there, so that no code of its packages runs in this one.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar

import msgspec
from packaging.utils import canonicalize_name

from agentrl.env.adapter import ADAPTERS
from agentrl.env.registry import ENVIRONMENTS, resolve
from agentrl.errors import AgentRLError, ConfigError, DeadlineError
from agentrl.hosting.interpreter import check_packages, command, environment
from agentrl.plugins import registry
from agentrl.plugins.kind import Kind
from agentrl.plugins.registry import Announced
from agentrl.records.manifest import PluginSource, Wrapped, interpreter, plugin_source, wrapped

T = TypeVar("T")
INSPECT_S = 600.0


@dataclass(frozen=True, slots=True)
class Offer:
    """An environment, or an adapter's scheme, that a distribution announces."""

    name: str
    is_scheme: bool
    distribution: str
    version: str
    """That of the distribution; for a scheme that of what the adapter wraps, empty if it wraps nothing."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The version of an interpreter, and what it announces."""

    python: str
    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class Inspected:
    """An environment: its source, the distribution that contains it (none for a file), and its keys."""

    source: PluginSource
    installed: tuple[Wrapped, ...]
    keys: tuple[str, ...] = ()
    """Names of its `--env.*` keys."""


def inspect(name: str, python: Path | None = None) -> Inspected:
    """Inspect an environment in this interpreter or in another one, which its source then contains.

    Raises ConfigError if it cannot be loaded.
    """
    if python:
        return _asked(python, Inspected, name)
    env_class = resolve(name)
    source = plugin_source(name, env_class)
    installed = (wrapped(source.distribution),) if source.distribution else ()
    return Inspected(source, installed, tuple(env_class.Config.model_fields))


def contents_of(python: Path) -> Contents:
    """Return what another interpreter announces, every class of it loaded. Raises ConfigError if one cannot be."""
    return _asked(python, Contents)


def run_module(python: Path, module: str, *words: str, timeout_s: float) -> int:
    """Run a module of agentrl in another interpreter, with this process's input and output. Returns its exit status."""
    check_packages(python)
    try:
        ran = subprocess.run(command(python, module, *words), env=environment(python), timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise DeadlineError(f"{python} -m {module} runs longer than {timeout_s:g} s") from error
    return ran.returncode


def _offers() -> Iterator[Offer]:
    kinds: tuple[Kind[Any], ...] = (ENVIRONMENTS, ADAPTERS)
    for kind in kinds:
        for name, item in registry.announced(kind).items():
            registry.resolve(kind, name)
            yield offer_of(kind, item)


def offer_of(kind: Kind[Any], item: Announced) -> Offer:
    """Return what an announcement offers. Imports an adapter, whose class says what it wraps."""
    distribution = str(canonicalize_name(item.distribution))
    if kind is not ADAPTERS:
        return Offer(item.name, False, distribution, item.version)
    wraps = registry.load(ADAPTERS, item).wraps
    return Offer(item.name, True, distribution, wrapped(wraps[0]).version if wraps else "")


def _asked(python: Path, kind: type[T], *words: str) -> T:
    """Call this module in another interpreter. What its packages print is no part of the answer."""
    check_packages(python)
    with TemporaryFile() as file:
        asking = command(python, __name__, str(file.fileno()), *words)
        try:
            ran = subprocess.run(
                asking, env=environment(python), pass_fds=[file.fileno()], capture_output=True, text=True,
                errors="replace", timeout=INSPECT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            what = " ".join(words) or "its packages"
            raise ConfigError(f"{python} did not load {what} in {INSPECT_S:g} s") from error
        file.seek(0)
        answer = file.read()
    if ran.returncode or not answer:
        said = "\n".join(ran.stderr.strip().splitlines()[-15:])
        raise ConfigError(f"in {python}: {said or f'no answer, code {ran.returncode}'}")
    return msgspec.json.decode(answer, type=kind)


def main(words: list[str]) -> int:
    """Write what this interpreter announces, or the source of the environment with this name. Returns 1 if it fails."""
    descriptor, *names = words
    try:
        answer = msgspec.json.encode(_answer(names))
    except AgentRLError as error:
        print(error, file=sys.stderr)
        return 1
    with os.fdopen(int(descriptor), "wb") as file:
        file.write(answer)
    return 0


def _answer(words: list[str]) -> Inspected | Contents:
    if not words:
        return Contents(platform.python_version(), tuple(_offers()))
    found = inspect(words[0])
    return replace(found, source=replace(found.source, interpreter=interpreter(has_hashes=True)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
