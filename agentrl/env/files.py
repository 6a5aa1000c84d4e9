"""Environments in a file or folder of one's own."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import tomllib
import traceback
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

from agentrl.env.authored import caught
from agentrl.env.base import Env
from agentrl.errors import ConfigError

FILES = ("env.py", "agent_func.py")


def is_path(name: str) -> bool:
    """True for `./x`, `../x`, `/x`, `~/x` and anything that ends in `.py`; everything else is a registered name."""
    return name.startswith(("./", "../", "/", "~")) or name in (".", "..") or name.endswith(".py")


def load_path(name: str) -> type[Env]:
    """The one environment class of a file, or of a folder: its pyproject's entry point, its env.py or agent_func.py."""
    path = Path(name).expanduser().resolve()
    if path.is_file():
        return only_env(load_file(path), path)
    if not path.is_dir():
        raise ConfigError(f"environment {name!r}: {path} does not exist")
    if target := announced_target(path):
        return load_target(path, target)
    for file in FILES:
        if (path / file).is_file():
            return only_env(load_file(path / file), path / file)
    raise ConfigError(
        f"environment {name!r}: {path} holds neither {' nor '.join(FILES)}, "
        'nor a pyproject.toml with [project.entry-points."agentrl.envs"]'
    )


@cache
def load_file(path: Path) -> ModuleType:
    """Import a file under a name of its own, so that it shadows nothing; ConfigError gives file and line."""
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"agentrl_file_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    outcome = caught(spec.loader.exec_module, (module,))
    if outcome.error is not None:
        del sys.modules[name]
        raise ConfigError(f"{failing_line(outcome.error, path)}: {type(outcome.error).__name__}: {outcome.error}")
    return module


def failing_line(error: BaseException, path: Path) -> str:
    """'path:line' of the last line of `path` that was running (of the syntax error, where it is one)."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)


def only_env(module: ModuleType, path: Path) -> type[Env]:
    """The one Env subclass that the module itself defines."""
    found: dict[str, Any] = {k: v for k, v in vars(module).items() if isinstance(v, type) and issubclass(v, Env)}
    own = {name: value for name, value in found.items() if value.__module__ == module.__name__}
    concrete = [value for value in own.values() if not value.__abstractmethods__]
    if len(concrete) != 1:
        names = ", ".join(sorted(own)) or "none"
        raise ConfigError(
            f"{path} must define exactly one agentrl.env.Env subclass with tasks and setup; found: {names}"
        )
    return concrete[0]  # type: ignore[no-any-return]


def announced_target(folder: Path) -> str:
    """The entry point `module:Class` that the folder's pyproject.toml announces; '' when it announces none."""
    file = folder / "pyproject.toml"
    if not file.is_file():
        return ""
    try:
        project = tomllib.loads(file.read_text()).get("project", {})
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: {error}") from error
    targets = list(project.get("entry-points", {}).get("agentrl.envs", {}).values())
    if len(targets) > 1:
        raise ConfigError(f"{file} announces {len(targets)} environments; install it and name the one you want")
    return targets[0] if targets else ""


def load_target(folder: Path, target: str) -> type[Env]:
    """Import the class an environment package in source form announces, from the folder itself."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    outcome = caught(EntryPoint("env", target, "agentrl.envs").load, ())
    if outcome.error is not None:
        raise ConfigError(f"{folder}: {target}: {type(outcome.error).__name__}: {outcome.error}") from outcome.error
    if not (isinstance(outcome.value, type) and issubclass(outcome.value, Env)):
        raise ConfigError(f"{folder}: {target} is no agentrl.env.Env class")
    return outcome.value
