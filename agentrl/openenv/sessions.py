"""The sessions of a server: as many as it may hold, each until its client leaves or is idle for too long."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agentrl.openenv.session import Session
from agentrl.openenv.wire import Code, WireError


@dataclass(slots=True)
class Held:
    """A session, the number of clients that use it now, and the timer that ends it when nobody does."""

    session: Session
    users: int = 0
    timer: asyncio.TimerHandle | None = None


class Sessions:
    """Sessions by their ids. A session counts until its episode is torn down."""

    def __init__(self, make: Callable[[], Session], most: int, idle_s: float) -> None:
        self._make, self._most, self._idle_s = make, most, idle_s
        self._held: dict[str, Held] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def open(self) -> str:
        """Open a session. Raises WireError if there are as many as there may be."""
        active = len(self._held) + len(self._closing)
        if active >= self._most:
            reason = f"all {self._most} sessions are in use: try again later, or raise --max-sessions"
            raise WireError(Code.CAPACITY_REACHED, reason, active_sessions=active, max_sessions=self._most)
        name = str(uuid.uuid4())
        self._held[name] = Held(self._make())
        self._rest(name)
        return name

    @contextmanager
    def use(self, name: str) -> Iterator[Session]:
        """Keep a session from ending because it is idle. Raises WireError for an unknown id."""
        held = self._held.get(name)
        if held is None:
            raise WireError(Code.SESSION_ERROR, f"there is no session {name[:100]!r}: it may have been idle too long")
        held.users += 1
        if held.timer is not None:
            held.timer.cancel()
        try:
            yield held.session
        finally:
            held.users -= 1
            if not held.users and name in self._held:
                self._rest(name)

    @contextmanager
    def lent(self) -> Iterator[Session]:
        """Open a session, and end it with the context. Raises WireError if there are too many."""
        name = self.open()
        try:
            with self.use(name) as session:
                yield session
        finally:
            self.end(name)

    def end(self, name: str) -> None:
        """End a session; its episode is torn down soon. Idempotent."""
        held = self._held.pop(name, None)
        if held is None:
            return
        if held.timer is not None:
            held.timer.cancel()
        closing = asyncio.create_task(held.session.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _rest(self, name: str) -> None:
        """End a session that nobody uses after its idle time."""
        self._held[name].timer = asyncio.get_running_loop().call_later(self._idle_s, self.end, name)

    async def close(self) -> None:
        """End all sessions, and wait until they are torn down."""
        for name in list(self._held):
            self.end(name)
        if self._closing:
            await asyncio.wait(set(self._closing))
