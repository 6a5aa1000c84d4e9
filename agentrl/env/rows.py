"""Rows of an environment's data file: where each stands, and on which side of the split it falls."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentrl.errors import DataError


def json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """What each line of a JSONL file holds, with its place, `train.jsonl:7`; DataError for one that is not JSON."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield f"{path.name}:{number}", parse_json(line, f"{path.name}:{number}")


def parse_json(text: bytes, place: str) -> Any:
    """JSON, or DataError saying where it is none."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataError(f"{place}: not JSON: {error}") from None


def is_in_share(key: str, share: float) -> bool:
    """Whether a row known by `key` is in this share of all: by a hash, so that no order or seed moves it."""
    digest = hashlib.sha256(key.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64
