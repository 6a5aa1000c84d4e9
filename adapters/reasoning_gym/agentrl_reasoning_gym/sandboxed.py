"""Scorers that execute the answer: they run in sandboxes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrl_sandbox import Limits, Pool, Sandbox, SandboxError

from agentrl_reasoning_gym.library import Entry, module_of
from agentrl_reasoning_gym.scoring import is_answer

PACKAGES = ("reasoning-gym",)
SOURCE = Path(__file__).with_name("session.py")
STARTING = Limits(wall_s=60, cpu_s=60)
SCORING = Limits(wall_s=10, cpu_s=5)
LIMITS = Limits(memory_bytes=1 << 30)
READ = ("variable", "integrand", "numbers", "target")
"""What these scorers read of an entry's metadata."""


class SandboxedScorer:
    """The scorer of a dataset in sandboxes that stay until an answer breaks one."""

    def __init__(self, name: str, keys: Mapping[str, Any], most: int = 4) -> None:
        self._pool = Pool(limits=LIMITS, ready=1, most=most, packages=PACKAGES)
        self._prepare = f"{SOURCE.read_text()}\nscore = prepare({module_of(name)!r}, {name!r}, {dict(keys)!r})\n"
        self._turn = asyncio.Semaphore(most)  # while it is held, a sandbox is idle or the pool has room
        self._idle: list[Sandbox] = []

    async def aclose(self) -> None:
        """Close every sandbox."""
        await self._pool.close()

    async def __call__(self, answer: str | None, entry: Entry) -> float:
        """Return the score of an answer: 0 for one that is none (`is_answer`) or that takes more than the limits."""
        if not is_answer(answer, entry):
            return 0.0
        needed = {key: entry["metadata"][key] for key in READ if key in entry["metadata"]}
        request = json.dumps([answer, {"answer": entry["answer"], "metadata": needed}])
        async with self._turn:
            return await self._score(request)

    async def _score(self, request: str) -> float:
        sandbox = self._idle.pop() if self._idle else await self._started()
        try:
            result = await sandbox.run(f"print(score({request!r}))", SCORING)
        except BaseException:
            self._pool.drop(sandbox)
            raise
        if result.is_ok and not result.is_state_lost:
            self._idle.append(sandbox)
            return float(result.stdout)
        self._pool.drop(sandbox)
        if result.hits:
            return 0.0
        raise SandboxError(f"the scorer ended with {result.exit_code}: {result.stderr[-500:].decode(errors='replace')}")

    async def _started(self) -> Sandbox:
        sandbox = await self._pool.take()
        try:
            result = await sandbox.run(self._prepare, STARTING)
        except BaseException:
            self._pool.drop(sandbox)
            raise
        if not result.is_ok:
            self._pool.drop(sandbox)
            raise SandboxError(f"the scorer cannot start: {result.stderr[-500:].decode(errors='replace')}")
        return sandbox
