"""Wheels for `agentrl env add`: tiny ones of our own, and stand-ins for the light base of agentrl.

A stand-in loads the package that is installed here under its own name alone, so that an installation needs no index and
takes no time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distribution, requires
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

STAND_IN = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location({name!r}, {file!r}, submodule_search_locations={folders!r})
module = sys.modules[{name!r}] = module_from_spec(spec)
spec.loader.exec_module(module)
"""
ENVIRONMENT = """
from agentrl.env import Env, Message, Task, reward

class {env}(Env):
    '''Walk out of a maze.'''

    def tasks(self, split):
        return [Task(f"{{split}}-{{n}}", n) for n in range(8)]

    def setup(self, task, ctx):
        return [Message(role="user", content="version {version}")]

    @reward
    def right(self, ctx):
        return {version}
"""


def write_wheel(
    folder: Path, name: str, version: str, files: Mapping[str, str], points: str = "", needs: tuple[str, ...] = ()
) -> Path:
    """Write a wheel with these files."""
    stem = f"{name.replace('-', '_')}-{version}"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", "Summary: A maze"]
    info = {
        "METADATA": "\n".join([*lines, *(f"Requires-Dist: {line}" for line in needs), ""]),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": points,
    }
    files = dict(files) | {f"{stem}.dist-info/{file}": text for file, text in info.items()}
    files |= {f"{stem}.dist-info/RECORD": "".join(f"{file},,\n" for file in [*files, f"{stem}.dist-info/RECORD"])}
    path = folder / f"{stem}-py3-none-any.whl"
    with ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
    return path


def write_maze(
    folder: Path, version: str, code: str = "", needs: tuple[str, ...] = ("agentrl-core",), *, owner: str = "ada"
) -> Path:
    """Write a wheel of the environment `OWNER/maze`; `code` comes first in its module."""
    source = code + ENVIRONMENT.format(env="Maze", version=version)
    points = f"[agentrl.envs]\n{owner}/maze = agentrl_{owner}_maze:Maze\n"
    files = {f"agentrl_{owner}_maze.py": source}
    return write_wheel(folder, f"agentrl-env-{owner}-maze", version, files, points, needs)


def write_base(folder: Path, *more: str) -> None:
    """Write a stand-in for everything that agentrl-core needs, and for more distributions with all that these need."""
    needed = {name: distribution(name) for name in more}
    for name in ("agentrl-core", *more):
        _closure(name, needed)
    for found in needed.values():
        files = dict(_stand_ins(found))
        write_wheel(folder, found.name, found.version, files, needs=tuple(map(str, _requirements(found.name))))


def _closure(name: str, found: dict[str, Distribution]) -> dict[str, Distribution]:
    for requirement in _requirements(name):
        key = canonicalize_name(requirement.name)
        if key not in found:
            found[key] = distribution(key)
            _closure(key, found)
    return found


def _requirements(name: str) -> list[Requirement]:
    every = map(Requirement, requires(name) or ())
    return [each for each in every if each.marker is None or each.marker.evaluate({"extra": ""})]


def _stand_ins(found: Distribution) -> Iterator[tuple[str, str]]:
    """Yield the file and the text of a module for each package or module of a distribution."""
    tops = {file.parts[0]: file for file in found.files or () if ".." not in file.parts}
    for top in tops:
        name, path = top.partition(".")[0], Path(str(found.locate_file(top)))
        if not name.isidentifier() or PurePosixPath(top).suffix in (".pth", ".dist-info", ".libs", ".pyi"):
            continue
        file, folders = (path / "__init__.py", [str(path)]) if path.is_dir() else (path, None)
        if file.is_file():
            yield (
                f"{name}/__init__.py" if folders else f"{name}.py",
                STAND_IN.format(name=name, file=str(file), folders=folders),
            )
