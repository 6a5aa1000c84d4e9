"""Installation of environments into virtual environments of their own, and their removal."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import IO

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, canonicalize_version, parse_wheel_filename

from agentrl.config.locking import locked
from agentrl.config.values import expanded
from agentrl.env.adapter import ADAPTERS
from agentrl.env.registry import ENVIRONMENTS
from agentrl.errors import ConfigError, DeadlineError, UnknownNameError
from agentrl.hosting import guardian
from agentrl.packaging.added import PYTHON, RECORD, VENV, Added, Download, Record, Wanted, added, home
from agentrl.packaging.building import check_package
from agentrl.packaging.core_wheel import pack_core
from agentrl.packaging.inspection import Contents, Offer, contents_of
from agentrl.packaging.scaffold import PackageName
from agentrl.plugins.files import is_path
from agentrl.plugins.registry import known, split_version
from agentrl.plugins.source import copy_source
from agentrl.records.jsonl import write_atomic

LOCK_S, VENV_S, INSTALL_S = 600.0, 300.0, 1800.0
FAMILIES = ("agentrl-env-", "agentrl-adapter-")
ARCHIVES = (".whl", ".tar.gz", ".zip")
VARIABLES = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV")
"""What is kept from pip and the new interpreter: it would show them the packages of this one."""
UNFINISHED = "unfinished.json"
"""The record before everything is there, and when not everything is gone: the next call removes a folder with it."""
OFFLINE = """\
For another index add --index-url URL; without a network, put the wheels of the environment and of all that it needs
into a folder and add --no-index --find-links FOLDER."""


@dataclass(frozen=True, slots=True)
class Request:
    """What `env add` installs: an environment, packages beside it, and how pip finds them."""

    text: str
    """NAME, OWNER/NAME, each with a version or without, a wheel, an archive or a folder."""
    beside: tuple[str, ...] = ()
    """Further requirements of pip, such as the library that an adapter wraps."""
    python: str = sys.executable
    """The interpreter that the virtual environment is made of."""
    pip: tuple[str, ...] = ()
    """Options of `pip install` that say where it searches."""

    @property
    def requirement(self) -> str:
        """What pip takes. Raises ConfigError for a path that does not exist and for a name that no package can have."""
        if is_path(self.text) or self.text.endswith(ARCHIVES):
            path = expanded(self.text).absolute()
            if not path.exists():
                raise ConfigError(f"{self.text} does not exist")
            if path.is_file() and not path.name.endswith(ARCHIVES):
                raise ConfigError(
                    f"{self.text} is a file, and env add installs packages: NAME, OWNER/NAME, a wheel, an archive, or "
                    f"a folder with a pyproject.toml. A run takes the file as it is: agentrl train --env {self.text}"
                )
            return str(path)
        name, specifiers = split_version(self.text)
        requirement = (name if name.startswith(FAMILIES) else PackageName.parse(name).distribution) + specifiers
        if not _is_name_with_version(requirement):
            raise ConfigError(f"{self.text!r} names no package: write a name, with a version such as ==1.2, or a path")
        return requirement

    @property
    def target(self) -> tuple[str, str]:
        """The distribution and its version, as far as they are known before the installation; "" if not."""
        path = Path(self.requirement)
        if path.suffix == ".whl":
            try:
                distribution, version, *_ = parse_wheel_filename(path.name)
            except InvalidWheelFilename as error:
                raise ConfigError(f"{path}: {error}") from error
            return distribution, str(version)
        name, specifiers = split_version(path.name)
        is_exact = specifiers.startswith("==") and "*" not in specifiers
        return canonicalize_name(name), specifiers.removeprefix("==").strip() if is_exact else ""


def add(request: Request) -> Added:
    """Install an environment into a virtual environment of its own, and load every class that it announces there.

    Raises ConfigError, and leaves nothing behind, if that fails or if this version is added already; DeadlineError if
    another process has been adding or removing for LOCK_S.
    """
    # Not find_spec: setuptools, where it is installed, answers the search for pip with a warning about distutils.
    if not any(distributions(name="pip")):
        raise ConfigError(f"agentrl env add needs pip: {sys.executable} -m ensurepip")
    target = request.target
    with _exclusive() as lock:
        _refuse_twice(*target)
        with _writing(home()):
            folder = Path(mkdtemp(prefix=f"{target[0]}-", dir=home()))
        try:
            (folder / UNFINISHED).touch()
            return _add(request, folder, lock)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def remove(name: str) -> Added:
    """Remove the added environment that a name, a scheme or a distribution with a version or without means.

    Raises UnknownNameError if there is none, ConfigError if there are several or if a process runs in it.
    """
    with _exclusive():
        found = _meant(Wanted.parse(name))
        if not found:
            here = known(ENVIRONMENTS, split_version(name)[0])
            hint = f"This interpreter has it: pip uninstall {here.distribution}." if here and here.distribution else ""
            raise UnknownNameError("added environment", name, {_title(item) for item in added()}, hint)
        if len(found) > 1:
            raise ConfigError(f"{name} is added as {', '.join(map(_title, found))}: name one of them")
        [item] = found
        if process := _user_of(item):
            raise ConfigError(f"process {process} runs in {item.python}: end it first")
        with _writing(item.folder):
            (item.folder / RECORD).rename(item.folder / UNFINISHED)
        shutil.rmtree(item.folder, ignore_errors=True)
    return item


def _is_name_with_version(requirement: str) -> bool:
    try:
        parsed = Requirement(requirement)
    except InvalidRequirement:
        return False
    return not (parsed.url or parsed.marker)


def _refuse_twice(distribution: str, version: str) -> None:
    """Raise ConfigError if this version, or one that is equal under PEP 440 (0.1 and 0.1.0), is added already."""
    of_it = (item for item in added() if item.record.distribution == distribution)
    wanted = canonicalize_version(version)
    if item := next((item for item in of_it if canonicalize_version(item.record.version) == wanted), None):
        raise ConfigError(f"{_title(item)} is added already, in {item.folder}: agentrl env remove {_title(item)} first")


def _title(item: Added) -> str:
    return f"{item.record.distribution}=={item.record.version}"


def _meant(wanted: Wanted) -> list[Added]:
    """Return the added environments that a name means; a version narrows them as it does for a run."""
    offered = [(item, version) for item in added() for version in _met_versions(item, wanted)]
    return list(dict.fromkeys(wanted.chosen(offered) if str(wanted.specifiers) else (item for item, _ in offered)))


def _met_versions(item: Added, wanted: Wanted) -> Iterator[str]:
    itself = Offer(item.record.distribution, False, item.record.distribution, item.record.version)
    for offer in (itself, *item.own_offers):
        if replace(wanted, is_scheme=offer.is_scheme).is_met_by(offer):
            yield offer.version


# --------------------------------------------------------------------------------------------------------------
# The folder of all added environments.


@contextmanager
def _exclusive() -> Iterator[IO[str]]:
    """Hold the lock of all added environments, and remove what an interrupted call left."""
    root = home()
    with ExitStack() as holding:
        with _writing(root):
            root.mkdir(parents=True, exist_ok=True)
            lock = holding.enter_context(locked(root / "lock", LOCK_S))
        for mark in root.glob(f"*/{UNFINISHED}"):
            shutil.rmtree(mark.parent, ignore_errors=True)
        yield lock


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Raise ConfigError if the body cannot write to a folder."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot write {folder}: {error.strerror}; set AGENTRL_HOME to another folder") from error


def _user_of(item: Added) -> int | None:
    """Return a process whose command begins with an interpreter of this folder."""
    root = item.folder.resolve()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            program = os.fsdecode((process / "cmdline").read_bytes().split(b"\0")[0])
            if "/" not in program:  # a thread of the kernel, or a command that was found by its name
                continue
            program = str((process / "cwd").readlink() / program)
        except OSError:  # it has just ended, or is of another user
            continue
        is_there = Path(program).exists()  # unless the process has gone to another folder since
        if is_there and root in Path(os.path.realpath(Path(program).parent)).parents:
            return int(process.name)
    return None


# --------------------------------------------------------------------------------------------------------------
# One installation.


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a distribution says about itself."""

    name: str
    version: str
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Archive:
    """The hashes of a wheel or an archive, by their algorithms."""

    hashes: dict[str, str]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where pip found a distribution: in an archive, or in a folder."""

    archive_info: Archive | None = None


@dataclass(frozen=True, slots=True)
class Installation:
    """One distribution in a report of pip."""

    metadata: Metadata
    download_info: Origin
    requested: bool

    @property
    def name(self) -> str:
        """Its normalised name."""
        return canonicalize_name(self.metadata.name)

    @property
    def download(self) -> Download:
        """What the record of an added environment keeps of it."""
        archive = self.download_info.archive_info
        return Download(self.name, self.metadata.version, archive.hashes.get("sha256", "") if archive else "")


@dataclass(frozen=True, slots=True)
class Report:
    """A report of `pip install --report`."""

    install: tuple[Installation, ...]


def _add(request: Request, folder: Path, lock: IO[str]) -> Added:
    python = folder / PYTHON
    with TemporaryDirectory(prefix="scratch-", dir=folder) as scratch:
        _make_venv(request.python, folder / VENV, Path(scratch), lock)
        installed = _install(request, python, Path(scratch), lock)
    contents = contents_of(python)
    chosen = _announcing(request, installed, contents)
    _refuse_twice(chosen.name, chosen.metadata.version)
    downloads = tuple(item.download for item in installed)
    own = chosen.metadata
    record = Record(chosen.name, own.version, own.summary, contents.offers, contents.python, downloads)
    write_atomic(folder / UNFINISHED, msgspec.json.format(msgspec.json.encode(record)) + b"\n")
    (folder / UNFINISHED).rename(folder / RECORD)
    return Added(folder, record)


def _make_venv(python: str, folder: Path, scratch: Path, lock: IO[str]) -> None:
    try:
        _execute([python, "-I", "-m", "venv", "--without-pip", str(folder)], VENV_S, scratch, lock)
    except ConfigError as error:
        raise ConfigError(
            f"{python} makes no virtual environment; give the path of a Python 3.11 or later, as in --python "
            f"VENV/bin/python:\n{error}"
        ) from error


def _install(request: Request, python: Path, scratch: Path, lock: IO[str]) -> tuple[Installation, ...]:
    """Install with this interpreter's pip into another one. Returns what was installed."""
    report = scratch / "report.json"
    options = ("--quiet", "--no-input", "--no-compile", "--disable-pip-version-check", "--report", str(report))
    wanted = (str(pack_core(scratch)), _copied(request.requirement, scratch), *request.beside)
    command = (sys.executable, "-P", "-m", "pip", "--python", str(python), "install")
    try:
        _execute([*command, *options, *request.pip, *wanted], INSTALL_S, scratch, lock)
    except ConfigError as error:
        raise ConfigError(f"{request.text} cannot be installed:\n{error}\n{OFFLINE}") from error
    return msgspec.json.decode(report.read_bytes(), type=Report).install


def _copied(requirement: str, scratch: Path) -> str:
    """Return a copy of a folder, in which pip builds and leaves files; another requirement as it is.

    Raises ConfigError for a folder that is no package, before anything in it is copied.
    """
    if not Path(requirement).is_dir():
        return requirement
    check_package(Path(requirement))
    return str(copy_source(Path(requirement), scratch / "source"))


def _announcing(request: Request, installed: Sequence[Installation], contents: Contents) -> Installation:
    """Return the requested distribution that announces an environment or a scheme."""
    announcing = {offer.distribution for offer in contents.offers}
    found = [item for item in installed if item.requested and item.name in announcing]
    if not found:
        raise ConfigError(
            f"{request.text} announces nothing in the entry-point groups {ENVIRONMENTS.group} and {ADAPTERS.group} "
            "(docs/share-an-env.md)"
        )
    if len(found) > 1:
        raise ConfigError(f"{' and '.join(item.name for item in found)} both announce something: add them one by one")
    return found[0]


def _execute(command: Sequence[str], timeout_s: float, scratch: Path, lock: IO[str]) -> None:
    """Run a command with a folder for temporary files. Raises ConfigError with the end of its output if it fails.

    Its processes end with this one's call, whatever ends that, and its guardian holds the lock until they have ended.
    """
    variables = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    connected, ours = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-I", guardian.__file__, str(connected), *command],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        env=variables | {"TMPDIR": str(scratch)}, start_new_session=True, pass_fds=[connected, lock.fileno()],
    ) as child:  # fmt: skip
        try:
            os.close(connected)
            said, _ = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise DeadlineError(f"{' '.join(command[:6])} … runs longer than {timeout_s:g} s") from error
        finally:
            os.close(ours)
            child.wait()
    if child.returncode:
        end = "\n".join(said.strip().splitlines()[-15:])
        raise ConfigError(end or f"{command[0]} ends with code {child.returncode}")
