"""Engines for tests of publications, which record what happens to them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from agentrl.engine.protocol import Engine


class Fleet:
    """A fleet that records which of its engines are replaced, and why."""

    def __init__(self, *engines: Any) -> None:
        self.engines: dict[int, Any] = dict(enumerate(engines))
        self.replaced: dict[int, str] = {}
        self.naps: list[str] = []
        self.incidents: list[str] = []

    def serving(self) -> dict[int, Any]:
        return self.engines

    def replace(self, lost: Mapping[int, Engine], why: str) -> None:
        assert all(self.engines[engine_id] is engine for engine_id, engine in lost.items())
        self.replaced |= dict.fromkeys(lost, why)
        self.incidents.append(why)

    async def sleep(self, deadline_s: float) -> None:
        self.naps.append("sleep")

    async def wake(self, deadline_s: float) -> None:
        self.naps.append("wake")


class Recording:
    """An engine that records its calls; `fails` raises in some of them, `gates` lets others wait."""

    def __init__(
        self,
        fails: dict[str, Exception] | None = None,
        logprob: float = -1.0,
        gates: dict[str, asyncio.Event] | None = None,
    ) -> None:
        self.calls: list[str] = []
        self.scored = asyncio.Event()
        self.args: list[Any] = []
        self.fails, self.logprob, self.gates = fails or {}, logprob, gates or {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        async def call(*args: Any) -> Any:
            deadline_s = args[-1]
            self.calls.append(name)
            self.args.extend(args[:-1])
            assert deadline_s > 0
            if name in self.gates:
                await asyncio.wait_for(self.gates[name].wait(), deadline_s)
            if name in self.fails:
                raise self.fails[name]
            if name != "score":
                return None
            self.scored.set()
            return (self.logprob,) * (len(args[0]) - 1)

        return call
