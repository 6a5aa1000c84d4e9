"""Other interpreters: how our code starts in one, with its packages and without ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentrl.errors import ConfigError
from agentrl.hosting.process import READY

SHIM = Path(__file__).with_name("shim")
IMPORT_S = 120.0
OURS = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV")
"""Environment variables that belong to our interpreter."""
TOO_OLD = "Unknown option: -P"
"""What a Python before 3.11 says to `command`."""


def command(python: Path, module: str, *args: str) -> list[str]:
    """Return the command that runs a module in `python`, to be started with the variables of `environment`."""
    return [str(python), "-P", "-m", module, *args]


def environment(python: Path) -> dict[str, str]:
    """Return the environment variables of a process in `python`.

    It imports agentrl from here, whatever version is installed there, and every other package from there alone. Its
    child processes do too. Hashes are not random unless PYTHONHASHSEED is set, so that sets have one order everywhere.
    """
    kept = {name: value for name, value in os.environ.items() if name not in OURS}
    home = python.parent.parent
    venv = {"VIRTUAL_ENV": str(home)} if (home / "pyvenv.cfg").is_file() else {}
    path = os.pathsep.join(filter(None, (str(python.parent), kept.get("PATH"))))
    own = {"PYTHONPATH": str(SHIM), "PYTHONNOUSERSITE": "1", "PYTHONUNBUFFERED": "1", "PATH": path}
    return {"PYTHONHASHSEED": "0"} | kept | venv | own


@dataclass(frozen=True)
class Process:
    """How a module of agentrl starts in a process of its own: the command without arguments, and its variables."""

    command: tuple[str, ...]
    variables: Mapping[str, str]

    @classmethod
    def of(cls, python: Path | None, module: str) -> Process:
        """Return the process in another interpreter, or in one like this with the same paths.

        Raises ConfigError if the other interpreter cannot be executed or lacks packages.
        """
        if python:
            check_packages(python)
            return cls(tuple(command(python, module)), environment(python))
        paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        return cls((sys.executable, "-P", "-m", module), os.environ | {"PYTHONPATH": paths})


def check_packages(python: Path) -> None:
    """Raise ConfigError unless `python` is a Python with the packages that agentrl needs there."""
    check_interpreter(python)
    trying = command(python, "agentrl.hosting.process")
    try:
        ran = subprocess.run(
            trying, env=environment(python), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=IMPORT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"env.python {python} cannot be executed: {error}") from error
    if TOO_OLD in ran.stderr:
        raise ConfigError(f"env.python {python}: agentrl needs Python 3.11 or later")
    if READY not in ran.stdout:
        last = (ran.stderr.strip().splitlines() or [f"it is no Python (exit code {ran.returncode})"])[-1]
        raise ConfigError(f"env.python {python}: {last}")


def check_interpreter(python: Path) -> None:
    """Raise ConfigError unless `python` is a file that can be executed."""
    if not (python.is_file() and os.access(python, os.X_OK)):
        inside = python / "bin" / "python"
        hint = f"set it to {inside}" if inside.is_file() else "give the path of a Python, as in VENV/bin/python"
        raise ConfigError(f"env.python {python} cannot be executed: {hint}")
