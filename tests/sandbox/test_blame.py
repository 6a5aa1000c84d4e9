"""A sandbox that breaks is the program's doing when it breaks another, and the infrastructure's when that does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count

import pytest
from agentrl_sandbox import (
    Backend,
    BrokenError,
    ExecResult,
    FullError,
    Limits,
    LostError,
    Pool,
    Program,
    Python,
    RefusedError,
    Sandbox,
    SandboxError,
    Snapshot,
    retry,
)
from agentrl_sandbox.blame import KNOWN, probe

from tests.sandbox.conftest import LOCAL, TIGHT, backend

SOON = 20.0


@dataclass
class Engine:
    """A backend of sandboxes in memory; `is_dead` as when a container engine, a server or a machine dies."""

    name: str = "engine"
    is_dead: bool = False
    is_full: bool = False
    disk: str = ""
    alive: int = 99
    """How many orders it carries out until it dies."""
    made: int = 0
    _numbers: count[int] = field(default_factory=count)

    def describe(self) -> str:
        return "in memory"

    async def create(self, limits: Limits) -> Sandbox:
        if self.is_dead:
            raise LostError("no engine answers")
        if self.is_full:
            raise FullError("it holds no more")
        self.made += 1
        return Simulated(self, f"sandbox-{next(self._numbers)}")

    async def close(self) -> None:
        """Nothing is shared."""

    def work(self) -> None:
        self.alive -= 1
        self.is_dead = self.is_dead or self.alive < 0


class Simulated:
    """A sandbox that does what is known of sandboxes, until it or its engine is dead."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self.id, self.is_broken = engine, name, False
        self._files: dict[str, bytes] = {}

    async def exec(
        self, program: Program, stdin: bytes = b"", limits: object = None, on_output: object = None
    ) -> ExecResult:
        return await self._answer(program.source if isinstance(program, Python) else "")

    async def run(self, source: str, limits: object = None, on_output: object = None) -> ExecResult:
        return await self._answer(source)

    async def read(self, path: str, most: int | None = None) -> bytes:
        return self._files[path]

    async def write(self, path: str, content: bytes) -> None:
        if self._engine.disk:
            raise RefusedError(self._engine.disk)
        self._files[path] = content

    async def snapshot(self) -> Snapshot:
        return Snapshot(b"")

    async def restore(self, snapshot: Snapshot) -> None:
        """Nothing is in it."""

    async def close(self) -> None:
        """Nothing is left of it."""

    def kill(self) -> None:
        self.is_broken = True

    def is_healthy(self) -> bool:
        return not (self.is_broken or self._engine.is_dead)

    async def _answer(self, source: str) -> ExecResult:
        self._engine.work()
        self.is_broken = self.is_broken or "break" in source
        if not self.is_healthy():
            raise LostError("the sandbox closed its channel")
        return ExecResult(0, KNOWN, b"", frozenset(), 0.1, 0.1, 1)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
async def pool(engine: Engine) -> AsyncIterator[Pool]:
    async with Pool(engine, TIGHT, ready=1, most=4) as made:
        yield made


def running(*sources: str) -> Callable[[Sandbox], Awaitable[ExecResult]]:
    async def actions(sandbox: Sandbox) -> ExecResult:
        for source in sources:
            result = await sandbox.run(source)
        return result

    return actions


async def test_a_program_that_breaks_a_second_sandbox_too_is_to_blame(pool: Pool) -> None:
    with pytest.raises(BrokenError, match="the same actions broke two sandboxes") as broken:
        await retry(pool, running("x = 1", "break it"), SOON)
    assert broken.value.fault == "program"
    assert pool.count.leased == 0


async def test_a_program_that_does_not_come_to_an_end_a_second_time_is_to_blame(pool: Pool) -> None:
    async def actions(sandbox: Sandbox) -> None:
        await asyncio.Event().wait()

    with pytest.raises(BrokenError):
        await retry(pool, actions, within_s=0.05)


async def test_an_accident_does_not_happen_again_in_the_second_sandbox(pool: Pool) -> None:
    assert (await retry(pool, running("x = 1", "x"), SOON)).stdout == KNOWN
    assert pool.count.leased == 0


ORDERS_OF_A_PROBE = 2


async def fault(work: Awaitable[object]) -> str:
    """Whose doing the error is that comes of it; "" for none."""
    try:
        await work
    except SandboxError as error:
        return error.fault
    return ""


@pytest.mark.parametrize(("last", "verdict"), [("break it", "program"), ("z", "")])
@pytest.mark.parametrize("alive", range(9))
async def test_an_engine_that_dies_at_any_time_is_to_blame(
    engine: Engine, pool: Pool, alive: int, last: str, verdict: str
) -> None:
    engine.alive = alive
    actions = ("x = 1", "y = 1", "z = 1", last)
    needed = ORDERS_OF_A_PROBE + len(actions) + (ORDERS_OF_A_PROBE if verdict else 0)
    assert await fault(retry(pool, running(*actions), SOON)) == ("infra" if alive < needed else verdict)


async def test_two_sandboxes_lost_with_their_engine_are_the_infrastructures(engine: Engine, pool: Pool) -> None:
    async def lost(sandbox: Sandbox) -> None:
        engine.is_dead = True
        await sandbox.run("x = 1")

    with pytest.raises(LostError) as first:
        await lost(await pool.take())
    engine.is_dead = False
    with pytest.raises(LostError) as second:
        await retry(pool, lost, SOON)
    assert (first.value.fault, second.value.fault) == ("infra", "infra")


@pytest.mark.parametrize("trouble", ["is_dead", "is_full", "disk"])
async def test_no_sandbox_or_a_bad_control_is_the_infrastructures(engine: Engine, trouble: str) -> None:
    setattr(engine, trouble, "No space left on device" if trouble == "disk" else True)
    async with Pool(engine, TIGHT, ready=1, most=4) as pool:
        with pytest.raises(SandboxError) as error:
            await retry(pool, running("break it"), SOON, wait_s=0.2)
    assert error.value.fault == "infra"


async def test_a_control_that_says_something_else_is_the_infrastructures(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.sandbox.test_blame.KNOWN", b"7\n")
    with pytest.raises(LostError, match="wrong results for known programs") as error:
        await retry(pool, running("break it"), SOON)
    assert error.value.fault == "infra"


async def test_a_pool_that_is_closed_meanwhile_is_the_infrastructures(engine: Engine) -> None:
    async with Pool(engine, TIGHT, ready=1, most=4) as pool:

        async def actions(sandbox: Sandbox) -> None:
            await pool.close()
            engine.is_dead = True
            await sandbox.run("x = 1")

        with pytest.raises(SandboxError) as error:
            await retry(pool, actions, SOON)
        assert error.value.fault == "infra"


@pytest.mark.parametrize("name", LOCAL)
async def test_real_sandboxes_serve_as_controls(name: str) -> None:
    pool = Pool(Unclosed(backend(name)), TIGHT, ready=1, most=4)

    async def killed(sandbox: Sandbox) -> None:
        sandbox.kill()
        await sandbox.run("x = 1")

    async with pool:
        async with pool.lease() as sandbox:
            await probe(sandbox)
        with pytest.raises(BrokenError):
            await retry(pool, killed, SOON)
        assert (await retry(pool, running("print(6 * 7)"), SOON)).stdout == KNOWN


class Unclosed:
    """A backend that serves other tests afterwards."""

    def __init__(self, made: Backend) -> None:
        self.name, self.describe, self.create = made.name, made.describe, made.create

    async def close(self) -> None:
        """It stays open."""
