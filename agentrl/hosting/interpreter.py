"""Other interpreters: how our code starts in one, with its packages and without ours."""

from __future__ import annotations

import os
from pathlib import Path

from agentrl.errors import ConfigError

SHIM = Path(__file__).with_name("shim")
OURS = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV")
"""Environment variables that belong to our interpreter."""


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


def check_interpreter(python: Path) -> None:
    """Raise ConfigError unless `python` is a file that can be executed."""
    if not (python.is_file() and os.access(python, os.X_OK)):
        inside = python / "bin" / "python"
        hint = f"set it to {inside}" if inside.is_file() else "give the path of a Python, as in VENV/bin/python"
        raise ConfigError(f"env.python {python} cannot be executed: {hint}")
