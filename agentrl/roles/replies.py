"""The replies of roles, by endpoint and request: none is asked for twice, in one run or after a resume."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from agentrl.errors import RoleError, RunError
from agentrl.roles.role import RoleReply

TABLES = """
CREATE TABLE IF NOT EXISTS replies (key BLOB PRIMARY KEY, reply BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS used (endpoint TEXT PRIMARY KEY, tokens INTEGER NOT NULL) WITHOUT ROWID;
"""
IN_MEMORY = ":memory:"
LOCK_S = 5.0
"""How long to wait for a process that has a file and is ending."""
FOUND = "SELECT reply FROM replies WHERE key = ?"
USED = "SELECT endpoint, tokens FROM used"
ADDED = "INSERT INTO used VALUES (?, ?) ON CONFLICT DO UPDATE SET tokens = tokens + excluded.tokens"


@dataclass(frozen=True, slots=True)
class ReplyFiles:
    """The files of replies of a run: each worker writes one of its own, and reads those of earlier starts.

    No file changes after the start that wrote it, so that workers on several machines read it without locks.
    """

    folder: Path | None = None
    """None: replies are kept in memory."""
    workers: int = 1
    start: int = 1
    """Number of this start of the run."""
    earlier: tuple[Path, ...] = ()
    spent: Mapping[str, int] = field(default_factory=dict)
    """Tokens that each endpoint used before this start."""

    @classmethod
    def begun(cls, folder: Path, workers: int) -> ReplyFiles:
        """Begin a start, while no worker runs. Raises RunError if an earlier file cannot be read."""
        earlier = tuple(sorted(folder.glob("[0-9]*.sqlite")))
        spent: Counter[str] = Counter()
        for path in earlier:
            with closing(_opened(path)) as file:  # completes it, if its worker was killed
                spent.update(dict(file.execute(USED)))
        return cls(folder, workers, 1 + max(map(_start_of, earlier), default=0), earlier, dict(spent))

    def of(self, worker: int) -> Path | None:
        """Return the file that a worker writes."""
        return self.folder and self.folder / f"{self.start}-{worker}.sqlite"


class Replies:
    """The replies that one worker has and finds, and the tokens that each endpoint has used in the run.

    Beside its file, each worker keeps the tokens of its endpoints in a small one, which the others read.
    """

    def __init__(self, files: ReplyFiles | None = None, worker: int = 0) -> None:
        """Open the worker's file, which is made if there is none. Raises RunError if it cannot be opened."""
        self.files = files = files or ReplyFiles()
        path = files.of(worker)
        self._name = str(path or IN_MEMORY)
        self._file = _opened(path)
        self._earlier = [_earlier(path) for path in files.earlier]
        self._count = path and path.with_suffix(".used")
        others = (files.of(other) for other in range(files.workers) if other != worker)
        self._others: dict[Path, dict[str, int]] = {path.with_suffix(".used"): {} for path in others if path}
        try:
            self._tell()
        except OSError as error:
            raise RunError(f"cannot write {self._count}: {error.strerror}") from error

    def get(self, key: bytes) -> RoleReply | None:
        """Return the reply to a request, None if none is kept. Raises RoleError if a file is damaged."""
        with self._reading():
            rows = (file.execute(FOUND, (key,)).fetchone() for file in (self._file, *self._earlier))
            row = next(filter(None, rows), None)
        return RoleReply(**msgspec.json.decode(row[0])) if row else None

    def put(self, key: bytes, reply: RoleReply) -> None:
        """Keep a reply, unless there is one. Raises RoleError if it is no JSON, or the disk is full."""
        try:
            encoded = msgspec.json.encode(reply)
        except (ValueError, OverflowError) as error:
            raise RoleError(f"{self._name}: a reply cannot be kept: {error}") from error
        with self._writing():
            self._file.execute("INSERT OR IGNORE INTO replies VALUES (?, ?)", (key, encoded))

    def count(self, endpoint: str, tokens: int) -> None:
        """Count the tokens of a reply. Raises RoleError if the disk is full."""
        with self._writing():
            self._file.execute(ADDED, (endpoint, tokens))

    def used(self, endpoint: str) -> int:
        """Return the tokens that an endpoint has used in the run: those of prompts and of replies."""
        with self._reading():
            own = dict(self._file.execute(USED))
        for path in self._others:
            with suppress(OSError, ValueError):  # not written yet, or replaced on another machine at this moment
                self._others[path] = msgspec.json.decode(path.read_bytes(), type=dict[str, int])
        return sum(each.get(endpoint, 0) for each in (own, self.files.spent, *self._others.values()))

    def close(self) -> None:
        """Close the files. Idempotent."""
        for file in (self._file, *self._earlier):
            file.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with self._file:
                self._file.execute("BEGIN")
                yield
            self._tell()
        except (sqlite3.Error, OSError) as error:
            raise RoleError(f"{self._name}: a reply cannot be kept: {error}") from error

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise RoleError(f"{self._name}, or an earlier file beside it, cannot be read: {error}") from error

    def _tell(self) -> None:
        """Write how many tokens this worker has used for the others, in one piece."""
        if self._count and self._others:
            partial = self._count.with_suffix(".partial")
            partial.write_bytes(msgspec.json.encode(dict(self._file.execute(USED))))
            partial.replace(self._count)


def key_of(endpoint: str, body: dict[str, Any]) -> bytes:
    """Return the key of a request to an endpoint: equal ones have equal keys."""
    return blake2b(msgspec.json.encode([endpoint, body], order="sorted"), digest_size=16).digest()


def _opened(path: Path | None) -> sqlite3.Connection:
    """Open a file for one process at a time. Raises RunError with what to do."""
    file = None
    try:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        file = sqlite3.connect(path or IN_MEMORY, timeout=LOCK_S, isolation_level=None)
        # Exclusive: the log needs no shared memory then, so that the file may be on a network file system.
        for setting in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = NORMAL"):
            file.execute(f"PRAGMA {setting}")
        file.executescript(TABLES)
        file.execute(USED).fetchall()
    except (sqlite3.Error, OSError) as error:
        if file is not None:
            file.close()
        is_locked = getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")
        cure = (
            "another process has it: end that process, then resume"
            if is_locked
            else "move it away and resume: its replies are asked for again, and the tokens that they used are forgotten"
        )
        raise RunError(f"cannot open {path}, a file of replies of roles: {error}; {cure}") from error
    return file


def _earlier(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)


def _start_of(path: Path) -> int:
    """Return the number of the start that wrote a file; files of earlier versions have that of their worker."""
    number = path.stem.partition("-")[0]
    return int(number) if number.isdecimal() else 0
