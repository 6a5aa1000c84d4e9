"""Environment classes by name: announced by installed packages, or in a file or folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from agentrl.env.attributes import check_made
from agentrl.env.base import Env
from agentrl.env.config import env_config
from agentrl.env.files import is_path, load_path, loaded_class
from agentrl.env.messages import short
from agentrl.errors import ConfigError, UnknownNameError, catch_exit

GROUP = "agentrl.envs"


@dataclass(frozen=True, slots=True)
class Announced:
    """An environment in the entry-point group `agentrl.envs` of an installed distribution."""

    name: str
    target: str
    distribution: str
    version: str
    entry: EntryPoint
    rival: str = ""
    """Another distribution that announces a different class under the same name."""


@cache
def announced() -> dict[str, Announced]:
    """Return every announced environment by name."""
    found: dict[str, Announced] = {}
    for entry in entry_points(group=GROUP):
        distribution = entry.dist.name if entry.dist else ""
        item = Announced(entry.name, entry.value, distribution, entry.dist.version if entry.dist else "", entry)
        other = found.setdefault(entry.name, item)
        if other.target != item.target:
            found[entry.name] = replace(other, rival=distribution or entry.value)
    return found


def resolve(name: str) -> type[Env]:
    """Return the environment class called `name`.

    A name is `math`, `owner/name`, `owner/name@1.2`, `./agent_func.py` or `./folder`.
    Raises UnknownNameError for an unknown name, and ConfigError for a class that cannot be loaded.
    """
    if is_path(name):
        return load_path(name)
    bare, _, version = name.partition("@")
    item = find(bare)
    if item.rival:
        raise ConfigError(f"{item.distribution} and {item.rival} both announce environment {bare!r}; uninstall one")
    if version and item.version.split(".")[: len(version.split("."))] != version.split("."):
        raise ConfigError(
            f"environment {name!r}: {item.distribution} {item.version} is installed; "
            f"pip install '{item.distribution}=={version}.*', or leave the version out"
        )
    return load(item)


def find(name: str) -> Announced:
    """Return the announced environment called `name`.

    For `owner/name`, `name` announced by a distribution of that owner.
    """
    known = announced()
    owner, _, last = name.rpartition("/")
    if name in known:
        return known[name]
    if owner and last in known and known[last].distribution.lower().startswith(f"{owner.lower()}-"):
        return known[last]
    package = f"agentrl-env-{name.replace('/', '-')}"
    hint = f"If a package provides it, install it: pip install {package} (or the name in its README)."
    if here := next((path for path in (Path(f"{name}.py"), Path(name)) if path.exists()), None):
        hint = f"To use the one in this folder, write ./{here}."
    raise UnknownNameError("environment", name, known, hint)


def load(item: Announced) -> type[Env]:
    """Import the class; raises ConfigError with the package and the error of the import."""
    where = f"environment {item.name!r} of {item.distribution} {item.version} ({item.target})"
    return loaded_class(catch_exit(item.entry.load), where)


def make_env(name: str, **options: Any) -> Env:
    """Make an environment object; `options` are its `--env.*` keys. Raises ConfigError for anything but a name."""
    if not isinstance(name, str):
        kind = f"the class {name.__name__}: call it instead" if isinstance(name, type) else short(name)
        raise ConfigError(f'make_env takes the name of an environment, such as "math" or "./env.py", not {kind}')
    env_class = resolve(name)
    config = env_config(env_class, options)
    env = env_class(config)
    check_made(env, config)
    return env
