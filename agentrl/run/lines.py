"""Files that survive a kill: JSON lines of which a torn last one is stepped over, and files whole or absent."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agentrl.errors import RunError

T = TypeVar("T")


class Lines:
    """Appends objects to `path`, one line each; a line is whole in the file when `append` returns.

    A torn line that an earlier process left is ended first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        if self._file.tell() and not path.read_bytes().endswith(b"\n"):
            self._file.write(b"\n")

    def append(self, item: Any) -> None:
        """Write one object. Raises RunError when the disk is full."""
        try:
            self._file.write(msgspec.json.encode(item) + b"\n")
        except OSError as error:
            raise explained(error, self.path) from error

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()


def read_lines(path: Path, kind: type[T]) -> list[T]:
    """The whole lines of a file as objects; empty when there is no file. Lines that were torn are left out."""
    if not path.exists():
        return []
    decoder = msgspec.json.Decoder(kind)
    out = []
    for line in path.read_bytes().splitlines():
        try:
            out.append(decoder.decode(line))
        except msgspec.DecodeError:
            continue
    return out


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that no reader and no kill ever sees half of it. Raises RunError when the disk is full."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        raise explained(error, path) from error


def explained(error: OSError, path: Path) -> RunError:
    """What hinders writing `path`, and what to do."""
    return RunError(f"cannot write {path}: {error.strerror}. Make room, then `agentrl resume {path.parent}`.")
