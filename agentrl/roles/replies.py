"""The replies of roles, by endpoint and request: none is asked for twice, in one run or after a resume."""

from __future__ import annotations

import sqlite3
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from agentrl.errors import RoleError
from agentrl.roles.role import RoleReply

TABLES = """
CREATE TABLE IF NOT EXISTS replies (key BLOB PRIMARY KEY, reply BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS used (endpoint TEXT PRIMARY KEY, tokens INTEGER NOT NULL) WITHOUT ROWID;
"""
IN_MEMORY = ":memory:"


class Replies:
    """A file of replies, and of the tokens that each endpoint has used. One process at a time uses it."""

    def __init__(self, path: Path | None = None) -> None:
        """Open the file, which is made if there is none; without a path the replies are kept in memory."""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._name = str(path or IN_MEMORY)
        self._file = sqlite3.connect(self._name, isolation_level=None)
        # Exclusive: the log needs no shared memory then, so that the file may be on a network file system.
        for setting in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = NORMAL"):
            self._file.execute(f"PRAGMA {setting}")
        self._file.executescript(TABLES)

    def get(self, key: bytes) -> RoleReply | None:
        """Return the reply to a request, None if it was never made."""
        row = self._file.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return RoleReply(**msgspec.json.decode(row[0])) if row else None

    def put(self, key: bytes, reply: RoleReply, endpoint: str) -> None:
        """Keep a reply, and count its tokens. Raises RoleError if it is no JSON, or the disk is full."""
        tokens = reply.prompt_tokens + reply.completion_tokens
        try:
            with self._file:
                self._file.execute("BEGIN")
                self._file.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", (key, msgspec.json.encode(reply)))
                self._file.execute(
                    "INSERT INTO used VALUES (?, ?) ON CONFLICT DO UPDATE SET tokens = tokens + excluded.tokens",
                    (endpoint, tokens),
                )
        except (sqlite3.Error, ValueError, OverflowError) as error:
            raise RoleError(f"{self._name}: a reply cannot be kept: {error}") from error

    def used(self, endpoint: str) -> int:
        """Return the tokens that an endpoint has used: those of prompts and of replies."""
        row = self._file.execute("SELECT tokens FROM used WHERE endpoint = ?", (endpoint,)).fetchone()
        return int(row[0]) if row else 0

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()


def key_of(endpoint: str, body: dict[str, Any]) -> bytes:
    """Return the key of a request to an endpoint: equal ones have equal keys."""
    return blake2b(msgspec.json.encode([endpoint, body], order="sorted"), digest_size=16).digest()
