"""The wire between a process of rollout workers and an engine's process.

    episodes ─ generate ─▶ EngineClient ══ submit, cancel ══▶ EngineServer ─ generate ─▶ Engine
               (one process of workers)  ◀═════ collect ═════   (the engine's process)

A call between processes costs as much as a turn may. So the requests of one event-loop tick travel together, and their
answers come back through one outstanding `collect`. Plain tuples cross the wire, errors as (kind, message).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Request = tuple[int, str, tuple[Any, ...], float]
"""Number, "generate" or "score", arguments, deadline in seconds."""
Answer = tuple[int, str, Any]
"""Number, the kind of the error ("" for none), result or message."""

COLLECT_S = 20.0  # how long one `collect` waits for an answer
GRACE_S = 40.0  # how much later a sign of life may come before the other side counts as dead
LEASE_S = COLLECT_S + GRACE_S


class Transport(Protocol):
    """An EngineServer, here or in another process. A call raises EngineDiedError when that is gone."""

    async def submit(self, client: str, requests: Sequence[Request]) -> None:
        """Begin these requests."""

    async def collect(self, client: str, timeout_s: float) -> list[Answer]:
        """Return the answers that are ready, as soon as there are any; none after `timeout_s`."""

    async def cancel(self, client: str, numbers: Sequence[int]) -> None:
        """Abort these requests: they get no answer."""
