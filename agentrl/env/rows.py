"""Rows of an environment's data file, and their split."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from agentrl.errors import DataError


def json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the value of each line of a JSONL file, preceded by its location, `train.jsonl:7`. Raises DataError."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield f"{path.name}:{number}", parse_json(line, f"{path.name}:{number}", "a line of JSON (JSONL)")


def parse_json(text: bytes, location: str, form: str = "JSON") -> Any:
    """Parse JSON; raises DataError with the location, and the form that it should have, if it is invalid."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataError(f"{location}: not {form}: {error}") from None


def folders_apart(path: Path, other: Path) -> str:
    """Return the folders that distinguish a file from another one of the same name, `train/`; "" if there is no need.

    Before the locations of its rows, they keep the ids of tasks from two files apart.
    """
    if path.name != other.name or path.resolve() == other.resolve():
        return ""
    folders, others = (file.absolute().parent.parts for file in (path, other))
    length = next(number for number in count(1) if folders[-number:] != others[-number:])
    return "".join(f"{folder}/" for folder in folders[-length:])


def is_in_share(key: str, share: float) -> bool:
    """Return whether the row with this key belongs to this share of all rows; a hash decides, not order or seed."""
    digest = hashlib.sha256(key.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64
