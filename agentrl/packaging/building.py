"""The wheel and the source distribution of an environment package."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from agentrl.errors import ConfigError
from agentrl.plugins.source import copy_source

BUILD_S = 120.0
HOOK = """
import importlib, sys
print(getattr(importlib.import_module(sys.argv[1]), sys.argv[2])(sys.argv[3]))
"""
"""Calls a hook of a build backend (PEP 517); the last line of its output is the name of the file."""


def build(folder: Path, out: Path) -> list[Path]:
    """Build the source distribution and the wheel of a package into `out` and return them.

    The backend of its pyproject.toml runs in this environment, without a network. Raises ConfigError if it fails.
    """
    backend = _backend(folder)
    out = out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="agentrl-build-") as home:
        copy = copy_source(folder, Path(home) / "source")
        return [out / _call(backend, hook, copy, out) for hook in ("build_sdist", "build_wheel")]


def upload(files: list[Path]) -> None:
    """Upload the files with twine, which asks for what it needs. Raises ConfigError if it fails."""
    if subprocess.run([sys.executable, "-m", "twine", "upload", *map(str, files)], check=False).returncode:
        raise ConfigError("twine could not upload the files: its output says why")


def check_uploader() -> None:
    """Raise ConfigError if twine is not installed."""
    if find_spec("twine") is None:
        raise ConfigError("--upload needs a package: pip install twine, or leave it out to build only")


def check_package(folder: Path) -> None:
    """Raise ConfigError if a folder has no pyproject.toml that can be read."""
    _backend(folder)


def _backend(folder: Path) -> str:
    try:
        tables = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder} has no usable pyproject.toml: {error} (docs/share-an-env.md)") from error
    backend: str = tables.get("build-system", {}).get("build-backend", "setuptools.build_meta")
    return backend


def _call(backend: str, hook: str, source: Path, out: Path) -> str:
    command = [sys.executable, "-c", HOOK, backend, hook, str(out)]
    ran = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=BUILD_S, check=False)
    if ran.returncode:
        said = "\n".join(ran.stderr.strip().splitlines()[-15:])
        raise ConfigError(f"{hook} of {backend} ends with code {ran.returncode}:\n{said}")
    return ran.stdout.strip().splitlines()[-1]
