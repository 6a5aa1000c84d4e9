"""Plugin classes in a file, a pickle or a folder."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pickle
import sys
import tomllib
import traceback
from abc import ABCMeta
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from agentrl.config.values import expanded
from agentrl.errors import Caught, ConfigError, ExitedError, UnknownNameError, catch_exit, did_you_mean
from agentrl.plugins.kind import Kind, T
from agentrl.plugins.origins import check_source, search_first
from agentrl.plugins.tracebacks import describe_error

PICKLE = ".pkl"
PACKAGE = "a pyproject.toml (docs/share-an-env.md)"


def is_path(name: str) -> bool:
    """True for `./x`, `../x`, `/x`, `~/x` and `x.py`, with or without `:Class`; other names are registered ones."""
    return (
        name.startswith(("./", "../", "/", "~"))
        or name in (".", "..")
        or split_class(name)[0].endswith((".py", ".py:", PICKLE))
    )


def split_class(name: str) -> tuple[str, str]:
    """Split `x.py:Mine` into path and class; the class is '' if none is named."""
    path, colon, chosen = name.rpartition(":")
    return (path, chosen) if colon and chosen.isidentifier() else (name, "")


def absolute(name: str) -> str:
    """Return the same name with an absolute path, valid in any working directory.

    A registered name and an address are returned as they are; `scheme:./x` names a path after its scheme.
    """
    scheme, _, rest = name.partition(":")
    if rest.startswith("//"):
        return name
    if rest and not is_path(scheme) and "/" not in scheme and is_path(rest):
        return f"{scheme}:{absolute(rest)}"
    path, chosen = split_class(name)
    whole = str(expanded(path).resolve())
    return (f"{whole}:{chosen}" if chosen else whole) if is_path(name) else name


def anchored_value(value: Any) -> Any:
    """Return the value of a plugin's key; absolute if it is the path of something that exists."""
    if isinstance(value, list | tuple):
        return [anchored_value(item) for item in value]
    if isinstance(value, Mapping):
        return {key: anchored_value(item) for key, item in value.items()}
    if not isinstance(value, str | os.PathLike) or not str(value):
        return value
    path = expanded(value)
    is_meant = is_path(str(value)) or path.suffix or len(path.parts) > 1
    return str(path.absolute()) if is_meant and os.path.exists(path) else value  # noqa: PTH110 (no text is an error)


def load_path(kind: Kind[T], name: str) -> type[T]:
    """Return the class of a file, pickle or folder.

    A folder has the class of its pyproject's entry point, or of one of `kind.files`. If a file or folder defines
    several, its name includes the class: `file.py:Class`.
    """
    file, chosen = split_class(name)
    if file.endswith(":"):
        bare = file.rstrip(":")
        remedy = (
            f"write one colon before the class, as in {bare}:{chosen}" if chosen else f"write {bare}, or {bare}:Class"
        )
        raise ConfigError(f"{kind.noun} {name!r}: {remedy}")
    path = expanded(file).resolve()
    if path.is_file() and path.suffix == PICKLE:
        return load_pickle(kind, path, path.stat().st_mtime_ns)
    if path.is_file():
        return class_of_file(kind, path, chosen)
    if not path.is_dir():
        raise ConfigError(f"{kind.noun} {name!r}: {path} does not exist")
    if target := announced_target(kind, path, chosen):
        return load_target(kind, path, target)
    for own in kind.files:
        if (path / own).is_file():
            return class_of_file(kind, path / own, chosen)
    raise ConfigError(
        f"{kind.noun} {name!r}: {path} contains neither {' nor '.join(kind.files)}, "
        f'nor a pyproject.toml with [project.entry-points."{kind.group}"]'
    )


@cache
def load_file(path: Path) -> ModuleType:
    """Import a file under a unique module name, so that it shadows nothing; raises ConfigError with file and line."""
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"agentrl_file_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    outcome = catch_exit(spec.loader.exec_module, module)
    if outcome.error is not None:
        del sys.modules[name]
        raise ConfigError(
            f"{failing_line(outcome.error, path)}: {import_fault(outcome.error, path)}"
        ) from outcome.error
    return module


@cache
def load_pickle(kind: Kind[T], path: Path, _mtime_ns: int) -> type[T]:
    """Return the class in a file that `agentrl.train` wrote for a class of a notebook; raises ConfigError."""
    return loaded_class(kind, catch_exit(pickle.loads, path.read_bytes()), str(path))


def loaded_class(kind: Kind[T], loaded: Caught, where: str) -> type[T]:
    """Return the class that was loaded; ConfigError for an error, and for anything but a concrete class of the kind."""
    if loaded.error is not None:
        raise ConfigError(f"{where} cannot be loaded: {describe_error(loaded.error)}") from loaded.error
    if not (isinstance(loaded.value, ABCMeta) and issubclass(loaded.value, kind.base)):
        raise ConfigError(f"{where} is not an {kind.public} class")
    if loaded.value.__abstractmethods__:
        raise ConfigError(f"{where} is abstract: define {missing(loaded.value)}")
    return cast("type[T]", loaded.value)


def import_fault(error: Exception, path: Path) -> str:
    """Return what importing a file raised and, if known, what to do."""
    text = str(error) if isinstance(error, ConfigError | ExitedError) else f"{type(error).__name__}: {error}"
    name = (error.name or "") if isinstance(error, ImportError) else ""
    beside = path.parent / name.partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and (beside.is_dir() or beside.with_suffix(".py").is_file()):
        return f"{text}. It is beside the file, which is imported alone: make the folder a package with {PACKAGE}"
    if isinstance(error, ImportError) and "relative import" in text:
        return f"{text}. A file is imported alone: make its folder a package with {PACKAGE}"
    return f"{text}. Install what it needs" if isinstance(error, ModuleNotFoundError) else text


def failing_line(error: BaseException, path: Path) -> str:
    """'path:line' of the last line of `path` that ran, or of the syntax error."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)


def class_of_file(kind: Kind[T], path: Path, chosen: str) -> type[T]:
    """Return the class that a file defines, or the one made from what it defines in its place."""
    with kind.importing(path):
        module = load_file(path)
    return class_in(kind, module, path, chosen)


def class_in(kind: Kind[T], module: ModuleType, path: Path, chosen: str = "") -> type[T]:
    """Return the class with this name, or the only one that the module itself defines.

    A name with an underscore is that of a base of the others.
    """
    classes = {name: value for name, value in vars(module).items() if isinstance(value, ABCMeta)}
    found = {name: value for name, value in classes.items() if issubclass(value, kind.base)}
    whole = [name for name, value in found.items() if not value.__abstractmethods__]
    own = {value: name for name, value in found.items() if value.__module__ == module.__name__}
    lacks = chosen not in found if chosen else not own
    if lacks and kind.derive and (derived := kind.derive(module, chosen)):
        return derived
    if chosen and chosen not in found:
        raise UnknownNameError(f"{kind.noun} class of {path}", chosen, whole)
    if chosen and chosen not in whole:
        raise ConfigError(
            f"{path}: {chosen} is abstract: define {missing(found[chosen])}.{did_you_mean(chosen, whole)}"
        )
    if chosen:
        return cast("type[T]", found[chosen])
    concrete = [value for value in own if not value.__abstractmethods__]
    concrete = [value for value in concrete if not own[value].startswith("_")] or concrete
    if len(concrete) == 1:
        return cast("type[T]", concrete[0])
    if concrete:
        several = sorted(value.__name__ for value in concrete)
        raise ConfigError(f"{path} defines {', '.join(several)}: name one of them, as in {path}:{several[0]}")
    lacks_base = [f"{name}, which does not derive from {kind.public}" for name in _look_alikes(kind, module)]
    abstract = "; ".join([*(f"{name} lacks {missing(value)}" for value, name in own.items()), *lacks_base]) or "none"
    other = kind.derived_from and f", or {kind.derived_from}"
    wanted = f"an {kind.public} subclass with {missing(kind.base)}{other}"
    raise ConfigError(f"{path} must define {wanted}; found: {abstract}")


def _look_alikes(kind: Kind[Any], module: ModuleType) -> list[str]:
    """Return the classes of a module that have the methods of the kind without being of it."""
    defined = {
        name: value for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    }
    kinds = {
        name: value for name, value in defined.items() if isinstance(value, type) and not issubclass(value, kind.base)
    }
    return [
        name for name, value in kinds.items() if all(hasattr(value, each) for each in kind.base.__abstractmethods__)
    ]


def missing(abstract: ABCMeta) -> str:
    """Return the abstract methods that a class lacks: 'setup and tasks'."""
    return " and ".join(sorted(abstract.__abstractmethods__))


def announced_target(kind: Kind[Any], folder: Path, chosen: str = "") -> str:
    """Return the entry point `module:Class` in the folder's pyproject.toml; '' if there is none."""
    file = folder / "pyproject.toml"
    if not file.is_file():
        return ""
    try:
        project = tomllib.loads(file.read_text()).get("project", {})
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: {error}") from error
    announced = list(dict.fromkeys(project.get("entry-points", {}).get(kind.group, {}).values()))
    targets = [target for target in announced if not chosen or target.partition(":")[2] == chosen]
    if len(targets) > 1 or (announced and not targets):
        names = [target.partition(":")[2] for target in announced]
        remedy = f"name one of them, as in ./{folder.name}:{names[0]}"
        if len(set(names)) < len(names):
            names, remedy = announced, "give each class a name of its own"
        raise ConfigError(f"{file} announces {', '.join(names)}: {remedy}")
    return targets[0] if targets else ""


def load_target(kind: Kind[T], folder: Path, target: str) -> type[T]:
    """Import the class of a package from its source folder. Raises ConfigError if Python has it from elsewhere."""
    search_first(folder, target)
    loaded = catch_exit(EntryPoint(kind.noun, target, kind.group).load)
    check_source(folder, target)
    return loaded_class(kind, loaded, f"{folder}: {target}")
