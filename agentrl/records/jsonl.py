"""Files that survive a kill: JSON lines whose torn last line is skipped, and files that are whole or absent."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

import msgspec

from agentrl.errors import AgentRLError, RunError

T = TypeVar("T")
C = TypeVar("C", bound="Closeable")


class JsonLines:
    """Appends objects to the file `path`, one line each; the line is in the file when `append` returns.

    A torn line that an earlier process left is terminated first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        if self._file.tell() and not path.read_bytes().endswith(b"\n"):
            append_whole(self._file.fileno(), b"\n", path)

    def append(self, item: Any) -> None:
        """Write one object. Raises RunError if the disk is full."""
        line = msgspec.json.encode(_named(msgspec.to_builtins(item))) + b"\n"
        append_whole(self._file.fileno(), line, self.path)

    def sync(self) -> None:
        """Wait until every line is on the disk itself."""
        fsync(self._file.fileno(), self.path)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()


def read_jsonl(path: Path, kind: type[T]) -> list[T]:
    """Read the lines of a file as objects of `kind`; empty if there is no file. Torn lines are skipped.

    A kill leaves the beginning of a line, and a power loss zero bytes after it.
    Raises RunError for a whole line that is not of `kind`, and for one that is not JSON.
    """
    if not path.exists():
        return []
    decoder = msgspec.json.Decoder(kind, strict=False)  # "nan" and "inf" are text
    out = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        line = line.rstrip(b"\0")
        try:
            out.append(decoder.decode(line))
        except msgspec.ValidationError as error:
            raise RunError(f"{path}, line {number}: {error}. It was written by another version of agentrl.") from error
        except msgspec.DecodeError as error:
            if not _is_torn(line):
                raise RunError(f"{path}, line {number}: {error}. Delete the line to read the others.") from error
    return out


def _is_torn(line: bytes) -> bool:
    """True for the beginning of a JSON text; for the parser a number cut at its point or sign is no number at all."""
    try:
        msgspec.json.decode(line.rstrip(b"+-.0123456789eE"))
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    return False


def _named(value: Any) -> Any:
    """Return the value with "nan", "inf" and "-inf" as text, for JSON has no such numbers."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: _named(item) for key, item in value.items()}
    return [_named(item) for item in value] if isinstance(value, list | tuple) else value


def read_json(path: Path, kind: type[T], remedy: str) -> T | None:
    """Read a JSON file as an object of `kind`, None if there is no file. Raises RunError if the file is damaged."""
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunError(f"{path} cannot be read ({error}): {remedy}") from error


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file that is never seen half written, not even after a kill. Raises RunError if the disk is full."""
    try:
        with atomic(path) as file:
            file.write(data)
    except OSError as error:
        raise explained(error, path) from error


class Closeable(Protocol):
    """A file, or an object that owns files."""

    def close(self) -> None:
        """Close it."""


@contextmanager
def closing(item: C) -> Iterator[C]:
    """Close `item` when the block ends; if the block has failed, an error in closing becomes a note of that failure."""
    try:
        yield item
    except BaseException as error:
        with noted(error):
            item.close()
        raise
    item.close()


@contextmanager
def noted(error: BaseException) -> Iterator[None]:
    """Close something after `error`: another failure becomes a note of that error."""
    try:
        yield
    except (AgentRLError, OSError) as second:
        if second is not error:
            error.add_note(f"closing failed too: {second}")


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write that replaces `path` when the block ends without an error, and is removed otherwise.

    A link is followed; what is no regular file, such as a device or a pipe, is written directly.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def append_whole(file: int, data: bytes, path: Path) -> None:
    """Append bytes to a file that is open for appending, all or none. Raises RunError if the disk is full."""
    end, view = os.fstat(file).st_size, memoryview(data)
    try:
        while view:
            view = view[os.write(file, view) :]
    except OSError as error:
        os.ftruncate(file, end)
        raise explained(error, path) from error


def fsync(file: int, path: Path) -> None:
    """Wait until what was written to an open file is on the disk itself. Raises RunError if it cannot get there."""
    try:
        os.fsync(file)
    except OSError as error:
        raise explained(error, path) from error


def explained(error: OSError, path: Path) -> RunError:
    """Return the error for a file of a run that cannot be written."""
    return RunError(
        f"cannot write {path}: {error.strerror}. Make room, then continue with `agentrl resume {path.parent}`."
    )
