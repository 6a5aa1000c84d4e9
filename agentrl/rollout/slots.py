"""Slots: how many episodes of each environment run at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any


class Slots:
    """Lets at most `limits[label]` episodes of an environment run at once (0: any number).

    The others wait in the order in which they came, without keeping those of another environment waiting.
    """

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._slots = {label: asyncio.Semaphore(limit) for label, limit in limits.items() if limit}

    def of(self, env: str) -> AbstractAsyncContextManager[Any]:
        """Return a slot of an environment, to be entered for the time of an episode."""
        return self._slots.get(env) or nullcontext()
