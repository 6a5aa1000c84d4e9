"""The wheel and the source distribution of an environment package."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyproject_hooks import BackendUnavailable, BuildBackendHookCaller, UnsupportedOperation

from agentrl.errors import ConfigError
from agentrl.plugins.source import copy_source

BUILD_S = 120.0


def build(folder: Path, out: Path) -> list[Path]:
    """Build the source distribution and the wheel of a package into `out` and return them.

    The backend of its pyproject.toml runs in this environment, without a network. Raises ConfigError if it fails.
    """
    table = _build_system(folder)
    backend = table.get("build-backend", "setuptools.build_meta")
    out = out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="agentrl-build-") as home:
        copy = copy_source(folder, Path(home) / "source")
        try:
            hooks = BuildBackendHookCaller(str(copy), backend, table.get("backend-path"), _run)
            return [out / hook(str(out)) for hook in (hooks.build_sdist, hooks.build_wheel)]
        except BackendUnavailable as error:
            raise ConfigError(f"the build backend {backend} cannot be imported:\n{_end(error.traceback)}") from error
        except (UnsupportedOperation, OSError, TypeError, ValueError) as error:
            raise ConfigError(f"the build backend {backend} cannot build {folder}: {error}") from error


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
    _build_system(folder)


def _build_system(folder: Path) -> dict[str, Any]:
    try:
        tables = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        return dict(tables.get("build-system", {}))
    except (OSError, TypeError, ValueError) as error:
        raise ConfigError(f"{folder} has no usable pyproject.toml: {error} (docs/share-an-env.md)") from error


def _run(cmd: Sequence[str], cwd: str | None = None, extra_environ: Mapping[str, str] | None = None) -> None:
    """Call a hook. Its last words are in the ConfigError if it fails."""
    hook = cmd[-2]
    try:
        ran = subprocess.run(
            cmd, cwd=cwd, env=os.environ | (extra_environ or {}), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", timeout=BUILD_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{hook} runs longer than {BUILD_S:g} s") from error
    if ran.returncode:
        raise ConfigError(f"{hook} ends with code {ran.returncode}:\n{_end(ran.stdout)}")


def _end(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-15:])
