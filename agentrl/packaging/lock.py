"""Locks: versions and hashes of environments and of the interpreter's packages, in a file that a run can require."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import tomlkit
from packaging.utils import canonicalize_name

from agentrl.config.schema import EnvSection
from agentrl.config.values import plain, toml_text
from agentrl.env.registry import announced
from agentrl.errors import ConfigError, UnknownNameError
from agentrl.packaging.added import added, home
from agentrl.packaging.inspection import inspect
from agentrl.plugins.files import absolute
from agentrl.plugins.registry import split_version
from agentrl.records.jsonl import atomic
from agentrl.records.manifest import (
    FileHash,
    Interpreter,
    PluginSource,
    Wrapped,
    env_changes,
    file_changes,
    files_in,
    hash_file,
    interpreter,
    interpreter_changes,
    version_changes,
    wrapped_changes,
)

COMMENT = """\
Written by `agentrl env lock`. A run with --env-lock FILE is refused where anything differs.
"""


@dataclass(frozen=True, slots=True)
class Locked:
    """One environment: its source, the distribution that contains it (none for a file or folder), and its data."""

    source: PluginSource
    installed: tuple[Wrapped, ...]
    data: dict[str, tuple[FileHash, ...]] = field(default_factory=dict)
    """The files that `--env.*` keys name, by the key."""


@dataclass(frozen=True, slots=True)
class Lock:
    """Environments, and the interpreter in which they ran."""

    python: str
    packages: dict[str, str]
    """Versions of all installed distributions by their normalised names (PEP 503)."""
    environments: tuple[Locked, ...]
    hashes: dict[str, str] = field(default_factory=dict)
    """By the same names, one sha256 of the files of each distribution that has files."""


def write_lock(path: Path, envs: Iterable[EnvSection] = (), *, must_name_files: bool = True) -> Lock:
    """Lock environments with the files that their keys name, by default every one that is announced or added.

    Raises ConfigError for an unusable name and, if keys must name files, for a key that the environment does not have
    and a value that names no file.
    """
    lock = _lock_of(envs or _all(), must_name_files=must_name_files)
    document = tomlkit.document()
    document.add(tomlkit.comment(COMMENT.strip()))
    document.update(plain(msgspec.to_builtins(lock)))
    try:
        with atomic(path) as file:
            file.write(tomlkit.dumps(document).encode())
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
    return lock


def check_lock(path: Path, envs: Iterable[EnvSection]) -> None:
    """Raise ConfigError with everything in which these environments and this interpreter differ from a lock."""
    lock, envs = _read(path), tuple(envs)
    if found := list(_differences(lock, _lock_of(envs))):
        raise ConfigError(
            f"this machine differs from {path}: {'; '.join(found)}. Install what the lock names, or write a new one "
            f"with `{_command(path, lock, envs)}`"
        )


def _command(path: Path, lock: Lock, envs: Sequence[EnvSection]) -> str:
    """Return the command that writes a lock of its environments and these, or of these alone if they have options."""
    options = [list(_options(env)) for env in envs]
    if not any(options):
        held = [each.source.name for each in lock.environments]
        words = list(dict.fromkeys([*held, *(env.name for env in envs)]))
    elif len(envs) == 1:
        words = [envs[0].name, *options[0]]
    else:
        words = ["--config", "CONFIG"]
    return shlex.join(["agentrl", "env", "lock", *words, "--out", str(path)])


def _options(env: EnvSection) -> Iterator[str]:
    """Yield the options with which `env lock` finds an environment and the files that its keys name."""
    if env.python and home() not in env.python.parents:
        yield from ("--env.python", str(env.python))
    for key, value in env.options.items():
        if any(files_in({key: value})):
            yield from (f"--env.{key}", str(value) if isinstance(value, str | Path) else toml_text(value))


def _all() -> Iterator[EnvSection]:
    """Yield every announced and every added environment."""
    yield from (EnvSection(name=name) for name in sorted(announced()))
    for item in added():
        names = (offer.name for offer in item.own_offers if not offer.is_scheme)
        yield from (EnvSection(name=f"{name}=={item.record.version}", python=item.python) for name in names)


def _lock_of(envs: Iterable[EnvSection], *, must_name_files: bool = False) -> Lock:
    here = interpreter(has_hashes=True)
    return Lock(here.python, here.packages, tuple(_locked(env, must_name_files) for env in envs), here.hashes)


def _locked(env: EnvSection, must_name_files: bool) -> Locked:
    found = inspect(env.name, env.python)
    for key, value in env.options.items() if must_name_files else ():
        if key not in found.keys:
            known = [f"env.{name}" for name in found.keys]
            raise UnknownNameError(f"key of {env.name}", f"env.{key}", known)
        if not any(files_in({key: value})):
            raise ConfigError(f"--env.{key} {value} is no file: a lock contains the files that keys name")
    named = {key: tuple(map(hash_file, files_in({key: value}))) for key, value in env.options.items()}
    data = {key: files for key, files in named.items() if files}
    return Locked(found.source, found.installed, data)


def _read(path: Path) -> Lock:
    try:
        lock = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Lock)
    except OSError as error:
        raise ConfigError(f"cannot read the lock {path}: {error.strerror}") from error
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path} is no lock: {error}; write one with `agentrl env lock --out {path}`") from error
    if not lock.hashes:
        raise ConfigError(f"{path} ends before its hashes: write it again with `agentrl env lock --out {path}`")
    return lock


def _differences(lock: Lock, now: Lock) -> Iterator[str]:
    """Yield what differs, once and in a few words. The lock may contain environments that the run does not use."""
    named: set[str] = set()
    for new in now.environments:
        name = new.source.name
        if old := _counterpart(new, lock):
            yield from (f"{name}: {change}" for change in _changes(old, new))
            named |= set() if new.source.interpreter else _changed(old, new)
        else:
            yield f"{name} is not in it"
    before, after = (_without(named, Interpreter(each.python, each.packages, each.hashes)) for each in (lock, now))
    yield from interpreter_changes(before, after)


def _counterpart(new: Locked, lock: Lock) -> Locked | None:
    """Return the same environment in a lock: of several versions, or with several files, that with fewest changes."""
    same = [each for each in lock.environments if _bare(each.source.name) == _bare(new.source.name)]

    def distance(old: Locked) -> tuple[bool, int]:
        return old.source.version != new.source.version, len(list(_changes(old, new)))

    return min(same, key=distance, default=None)


def _changes(old: Locked, new: Locked) -> Iterator[str]:
    yield from version_changes({"version": old.source.version}, {"version": new.source.version})
    named, sources = _changed(old, new), (old.source, new.source)
    yield from env_changes(*(replace(each, interpreter=_without(named, each.interpreter)) for each in sources))
    if (old.source.version, old.source.sha256) == (new.source.version, new.source.sha256):
        yield from wrapped_changes(old.installed, new.installed, "distribution")
    for key in sorted(old.data | new.data):
        yield from file_changes(f"env.{key}", old.data.get(key, ()), new.data.get(key, ()))


def _changed(old: Locked, new: Locked) -> set[str]:
    """Return the distributions of an environment that are others than in the lock."""
    before, after = ({*each.installed, *each.source.wraps} for each in (old, new))
    return {str(canonicalize_name(each.distribution)) for each in before ^ after}


def _without(names: Collection[str], found: Interpreter | None) -> Interpreter | None:
    """Return an interpreter without the packages of these names, which are reported already."""
    if found is None:
        return None
    packages, hashes = ({k: v for k, v in each.items() if k not in names} for each in (found.packages, found.hashes))
    return Interpreter(found.python, packages, hashes)


def _bare(name: str) -> str:
    """Return a name without its version; a path as it is in any working directory."""
    path = absolute(name)
    return path if path != name else split_version(name)[0]
