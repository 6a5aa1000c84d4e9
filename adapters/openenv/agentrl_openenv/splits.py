"""The Task API of a server: which of its splits are for training and for tests, and how many tasks they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

KINDS = {"train": ("train",), "test": ("test", "validation")}
"""The types of splits from which training and evaluations take their tasks, the preferred one first."""


@dataclass(frozen=True, slots=True)
class Split:
    """A split of a server; `size` is None if its tasks are endless."""

    name: str
    size: int | None


async def splits_of(client: httpx.AsyncClient) -> Mapping[str, Split]:
    """Return the splits for "train" and "test"; none if the server has no Task API.

    For what is not OpenEnv's it raises httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError or
    RecursionError.
    """
    names = await client.get("/list_environments")
    if not names.is_success or not (known := names.json()):
        return {}
    base = f"/{quote(known[0])}"
    listed = await client.get(f"{base}/splits")
    if not listed.is_success:
        return {}
    found = {}
    for split, kinds in KINDS.items():
        alike = [one["name"] for kind in kinds for one in listed.json() if kind in (one["name"], one.get("type"))]
        if alike:
            found[split] = Split(alike[0], _size(await client.post(f"{base}/num_tasks", json={"split": alike[0]})))
    return found


def _size(answer: httpx.Response) -> int | None:
    if answer.status_code == httpx.codes.NOT_IMPLEMENTED:
        return None
    body: Any = answer.raise_for_status().json()
    return int(body["num_tasks"])
