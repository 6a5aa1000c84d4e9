"""Root file system as a tar archive: this machine's Python, shell and time zones, packages, and their libraries."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zoneinfo
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from agentrl_sandbox.boot import interpreter
from agentrl_sandbox.packages import FOLDER

COMMANDS = [
    "awk",
    "basename",
    "bash",
    "cat",
    "chmod",
    "cp",
    "cut",
    "date",
    "diff",
    "dirname",
    "echo",
    "env",
    "expr",
    "false",
    "find",
    "grep",
    "head",
    "id",
    "kill",
    "ln",
    "ls",
    "mkdir",
    "mktemp",
    "mv",
    "od",
    "printf",
    "pwd",
    "readlink",
    "rm",
    "rmdir",
    "sed",
    "seq",
    "sh",
    "sleep",
    "sort",
    "stat",
    "tail",
    "tee",
    "test",
    "timeout",
    "touch",
    "tr",
    "true",
    "uname",
    "uniq",
    "wc",
    "which",
    "xargs",
]
LEFT_OUT = ("site-packages", "dist-packages", "__pycache__", "test", "tests", "idlelib", "tkinter", "ensurepip")
FOLDERS = ("tmp", "proc", "sys", "dev", "etc", "run")


def interpreter_folder() -> str:
    """Return the folder of `python3` in the image."""
    return "/usr/local/bin"


def write_rootfs(file: BinaryIO, packages: Mapping[str, Path] | None = None) -> None:
    """Write the archive to an open file; `packages` as `packages.paths` returns them."""
    packages = packages or {}
    python = Path(interpreter())
    programs = [python, *(Path(found).resolve() for name in COMMANDS if (found := shutil.which(name)))]
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name in FOLDERS:
            _add_folder(archive, name)
        library = Path(sys.base_prefix).resolve() / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
        archive.add(library, str(library).lstrip("/"), filter=_keep)
        for zones in filter(Path.is_dir, map(Path, zoneinfo.TZPATH)):
            archive.add(zones, str(zones).lstrip("/"), filter=_readable)
        for name, path in packages.items():
            archive.add(path, f"{FOLDER}/{name}".lstrip("/"), filter=_readable)
        loaded = _libraries([*programs, *library.glob("lib-dynload/*.so"), *_extensions(packages.values())])
        bundled = [path.resolve() for path in packages.values()]
        outside = {path for path in loaded if not any(path.resolve().is_relative_to(own) for own in bundled)}
        for path in sorted({*programs, *outside}):
            _add_file(archive, path, path.resolve())
        for name in COMMANDS:
            if found := shutil.which(name):
                _add_link(archive, f"bin/{name}", str(Path(found).resolve()))
        for name in ("python3", "python"):
            _add_link(archive, f"{interpreter_folder().lstrip('/')}/{name}", str(python))


def _libraries(programs: list[Path]) -> set[Path]:
    """Return every shared library that these programs load, by the path under which it is searched."""
    found = set()
    for start in range(0, len(programs), 50):
        words = ["ldd", *map(str, programs[start : start + 50])]
        answer = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False).stdout
        found |= {Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", answer, re.MULTILINE)}
    return found


def _extensions(packages: Iterable[Path]) -> Iterator[Path]:
    for path in packages:
        yield from path.rglob("*.so") if path.is_dir() else [path] if path.suffix == ".so" else []


def _add_folder(archive: tarfile.TarFile, name: str) -> None:
    entry = tarfile.TarInfo(name)
    # Docker gives a tmpfs the mode of the folder below it.
    entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
    archive.addfile(entry)


def _add_file(archive: tarfile.TarFile, name: Path, source: Path) -> None:
    entry = archive.gettarinfo(str(source), str(name).lstrip("/"))
    entry.type, entry.mode, entry.uid, entry.gid, entry.linkname = tarfile.REGTYPE, 0o755, 0, 0, ""
    entry.size = source.stat().st_size
    with source.open("rb") as content:
        archive.addfile(entry, content)


def _add_link(archive: tarfile.TarFile, name: str, target: str) -> None:
    if f"/{name}" != target:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        archive.addfile(entry)


def _keep(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Keep the standard library without LEFT_OUT, readable by everyone."""
    return None if Path(entry.name).name in LEFT_OUT else _readable(entry)


def _readable(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Make an entry owned by root and readable by everyone."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode |= 0o555 if entry.isdir() else 0o444
    return entry
