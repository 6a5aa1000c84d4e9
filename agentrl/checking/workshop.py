"""A package built and installed: its wheel, a virtual environment over the current one, and runs without network."""

from __future__ import annotations

import asyncio
import atexit
import importlib.metadata
import json
import os
import shlex
import shutil
import site
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from inspect import getfile
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.requirements import Requirement

from agentrl.checking.check import SCRATCH, FailedError, SkippedError, Subject
from agentrl.env.adapter import Adapter
from agentrl.env.registry import ENVIRONMENTS
from agentrl.errors import Caught, catch
from agentrl.plugins.registry import known, split_version
from agentrl.plugins.source import copy_source

BUILD_S, INSTALL_S, RUN_S = 120.0, 1200.0, 500.0
EXTRA = "test"
"""The extra with what the tests of a package need."""
RIGHTS = ((), ("--map-root-user",))
"""Root needs no user namespace, in which a sandbox that the environment starts may lack rights."""
LOOPBACK = ("sh", "-c", 'ip link set lo up 2>/dev/null; exec "$@"', "sh")
GUARDED = ("-m", "agentrl.checking.offline")


@dataclass(frozen=True)
class Source:
    """The folder of a package, which has a pyproject.toml."""

    folder: Path

    @classmethod
    def of(cls, subject: Subject) -> Source:
        """Return the package that defines the environment. Raises SkippedError if it is in none."""
        file = Path(getfile(subject.env_class)).resolve()
        for folder in file.parents:
            if (pyproject := folder / "pyproject.toml").is_file() and ENVIRONMENTS.group in pyproject.read_text():
                return cls(folder)
        raise SkippedError(_why_without_source(subject, file))

    @cached_property
    def project(self) -> Mapping[str, Any]:
        """The table `[project]`."""
        table: Mapping[str, Any] = tomllib.loads((self.folder / "pyproject.toml").read_text()).get("project", {})
        return table

    @property
    def announced(self) -> Mapping[str, str]:
        """The announced environments: a name, and its class."""
        found: Mapping[str, str] = self.project.get("entry-points", {}).get(ENVIRONMENTS.group, {})
        return found

    def name_of(self, subject: Subject) -> str:
        """Return the name under which the environment is announced. Raises FailedError if it is not."""
        for name, target in self.announced.items():
            if target.rpartition(":")[2] == subject.env_class.__name__:
                return name
        raise FailedError(f"pyproject.toml announces no class {subject.env_class.__name__} in {ENVIRONMENTS.group}")


def _why_without_source(subject: Subject, file: Path) -> str:
    if issubclass(subject.env_class, Adapter):
        return f"{subject.name} is an environment of another library, which has a package of its own"
    if item := known(ENVIRONMENTS, split_version(subject.name)[0]):
        return f"{subject.name} is installed from {item.distribution} {item.version}: check the folder of its source"
    return f"{file.name} is in no package that announces it: see docs/share-an-env.md to share it"


@dataclass(frozen=True)
class Installed:
    """A wheel of a package in a virtual environment, which also sees the packages of the current one unless alone."""

    home: Path
    source: Source
    wheel: Path
    is_alone: bool = False
    """The virtual environment sees only itself."""

    @property
    def python(self) -> str:
        """The interpreter of the virtual environment."""
        return str(self.home / "venv" / "bin" / "python")

    @property
    def packages(self) -> Path:
        """The folder of the installed modules."""
        [folder] = (self.home / "venv" / "lib").glob("python*/site-packages")
        return folder

    async def run(
        self,
        words: Sequence[str],
        folder: str = "",
        stdin: str = "",
        *,
        is_offline: bool = True,
        timeout_s: float = RUN_S,
    ) -> str:
        """Run the interpreter in an empty folder, without network. Returns stdout; raises FailedError if it fails."""
        where = self.home / (folder or "empty")
        await asyncio.to_thread(where.mkdir, exist_ok=True)
        start = (*(namespace() if is_offline else ()), self.python)
        guard = GUARDED if is_offline and not namespace() else ()
        words = (*guard, *(words[1:] if guard and words[0] == "-m" else words))
        ran = await asyncio.to_thread(_run, [*start, *words], where, timeout_s, stdin, self._environment())
        return ran

    def _environment(self) -> dict[str, str]:
        """Return the environment variables: PYTHONPATH without the source, which would hide the wheel."""
        if self.is_alone:
            return _without_paths()
        paths = [path or str(Path.cwd()) for path in sys.path]
        kept = [path for path in paths if Path(path).resolve() != self.source.folder and "site-packages" not in path]
        return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in kept if not _is_standard(path))}


def _is_standard(path: str) -> bool:
    return Path(path).is_relative_to(sys.base_prefix) or Path(path).suffix == ".zip"


@cache
def namespace() -> tuple[str, ...]:
    """Return the beginning of a command that runs without network; nothing if this machine does not allow it."""
    for rights in RIGHTS if shutil.which("unshare") else ():
        words = ("unshare", *rights, "--net", *LOOPBACK)
        if subprocess.run([*words, "true"], capture_output=True, timeout=BUILD_S).returncode == 0:
            return words
    return ()


def installed(source: Source) -> Installed:
    """Build and install a package, once in this process. Raises FailedError with what pip prints if it fails."""
    tried = _tried(source)
    if tried.error:
        raise tried.error
    place: Installed = tried.value
    return place


@cache
def _tried(source: Source) -> Caught:
    return catch(_install, source)


def _install(source: Source) -> Installed:
    home = Path(mkdtemp(prefix="agentrl-package-", dir=os.environ.get(SCRATCH)))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    wheel = _build(source, home)
    place = Installed(home, source, wheel)
    venv.create(home / "venv", symlinks=True)
    lines = [f"import site; site.addsitedir({folder!r})\n" for folder in site.getsitepackages()]
    (place.packages / "current.pth").write_text("".join(lines))
    options = ["--no-deps", "--no-index", "--no-compile", "--target", str(place.packages)]
    _pip("install", [*options, str(wheel)], home)
    return place


def installed_alone(source: Source) -> Installed:
    """Install a package with all that it depends on from the index that pip is configured for.

    What is installed here from a folder (`pip install -e`) is built from that folder. Raises FailedError with what pip
    prints if it fails.
    """
    home = Path(mkdtemp(prefix="agentrl-package-", dir=os.environ.get(SCRATCH)))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    wheel = _build(source, home)
    wanted = [*source.project.get("dependencies", ()), *source.project.get("optional-dependencies", {}).get(EXTRA, ())]
    for folder in local_sources(wanted).values():
        _wheel(folder, home, home / "wheels")
    place = Installed(home, source, wheel, is_alone=True)
    venv.create(home / "venv", symlinks=True)
    extra = f"[{EXTRA}]" if EXTRA in source.project.get("optional-dependencies", {}) else ""
    start = [sys.executable, "-m", "pip", "--python", place.python, "install", "--quiet", "--disable-pip-version-check"]
    words = [*start, "--find-links", str(home / "wheels"), f"{wheel}{extra}"]
    _run(words, home, INSTALL_S, "", _without_paths())
    return place


def local_sources(requirements: Iterable[str]) -> dict[str, Path]:
    """Return the folders from which distributions are installed here, among all that the requirements lead to."""
    found: dict[str, Path] = {}
    seen, ahead = set[str](), list(requirements)
    while ahead:
        requirement = Requirement(ahead.pop())
        if requirement.name in seen:
            continue
        seen.add(requirement.name)
        for distribution in importlib.metadata.distributions(name=requirement.name):
            # The metadata that a build left in a source folder may hide what pip has installed: it has no address.
            url = json.loads(distribution.read_text("direct_url.json") or "{}")
            if "dir_info" in url:
                found[requirement.name] = Path(url2pathname(urlsplit(url["url"]).path))
                ahead += [line for line in distribution.requires or () if "extra ==" not in line]
    return found


def _build(source: Source, home: Path) -> Path:
    """Return the wheel that pip builds from a copy of the folder, with the build tools of this environment."""
    _wheel(source.folder, home, home / "wheels")
    [wheel] = (home / "wheels").glob("*.whl")
    return wheel


def _wheel(folder: Path, home: Path, wheels: Path) -> None:
    """Build a wheel from a copy of a folder."""
    if missing := build_requirements(folder):
        raise FailedError(
            f"its build needs {', '.join(missing)} in this environment: pip install {shlex.join(missing)}"
        )
    copy = copy_source(folder, Path(mkdtemp(prefix="source-", dir=home)))
    _pip("wheel", ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(wheels), str(copy)], home)


def build_requirements(folder: Path) -> list[str]:
    """Return what the build of a package requires, and this environment lacks or has in another version."""
    table = tomllib.loads((folder / "pyproject.toml").read_text()).get("build-system", {})
    return [line for line in table.get("requires", ()) if not is_met(Requirement(line))]


def is_met(requirement: Requirement) -> bool:
    """Return whether this environment has what is required, or need not have it."""
    if requirement.marker is not None and not requirement.marker.evaluate():
        return True
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return requirement.specifier.contains(version, prereleases=True)


def _pip(command: str, words: Sequence[str], folder: Path) -> None:
    start = [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check"]
    _run([*start, *words], folder, BUILD_S, "", dict(os.environ))


def _without_paths() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def _run(words: Sequence[str], folder: Path, timeout_s: float, stdin: str, environment: Mapping[str, str]) -> str:
    """Return stdout of a command. Raises FailedError with the end of its output if it fails."""
    name = " ".join(Path(word).name if "/" in word else word for word in words if not word.startswith("ip link"))
    try:
        ran = subprocess.run(
            words, cwd=folder, env=environment, input=stdin, capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired as error:
        raise FailedError(f"{name} runs longer than {timeout_s:g} s") from error
    if ran.returncode:
        said = "\n".join((ran.stdout + ran.stderr).strip().splitlines()[-15:])
        raise FailedError(f"{name} ends with code {ran.returncode}:\n{said}")
    return ran.stdout
