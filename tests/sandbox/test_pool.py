"""A pool gives each sandbox to one lease, in order, within a deadline, and leaves nothing behind, whoever is killed."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from agentrl_sandbox import ClosedError, FullError, LostError, Pool, Python, SandboxError, cgroups, gc, leases
from agentrl_sandbox.backends import docker
from agentrl_sandbox.doctor import checks
from agentrl_sandbox.types import Limits, Sandbox

from tests.sandbox.conftest import IDS, TIGHT, backend, running


@pytest.fixture(params=["bubblewrap", "process"])
def name(request: pytest.FixtureRequest) -> str:
    backend(request.param)
    return str(request.param)


def pool(name: str, ready: int = 1, most: int = 4) -> Pool:
    return Pool(backend(name), TIGHT, ready, most)


async def until(condition: object, what: object, within_s: float = 20.0) -> None:
    """Return when it holds; `condition` is called between turns of the event loop."""
    async with asyncio.timeout(within_s):
        while not condition():  # type: ignore[operator]  # noqa: ASYNC110 (a pool offers no more than its count)
            await asyncio.sleep(0.001)


async def test_every_lease_has_a_sandbox_that_has_run_nothing(name: str) -> None:
    async with pool(name, ready=2) as sandboxes:
        seen = set()
        for _ in range(4):
            async with sandboxes.lease() as sandbox:
                seen.add(sandbox.id)
                await sandbox.write("mine", b"")
                assert (await sandbox.exec(Python("import os; print(os.listdir())"))).stdout == b"['mine']\n"
        assert len(seen) == sandboxes.count.served == 4


async def test_sandboxes_wait_for_leases_and_not_the_other_way_round(name: str) -> None:
    async with pool(name, ready=2) as sandboxes:
        await until(lambda: sandboxes.count.ready == 2, sandboxes)
        async with sandboxes.lease():
            assert sandboxes.count.waited_s == 0.0


async def test_a_sandbox_that_died_while_it_was_ready_is_not_given_out(name: str) -> None:
    async with pool(name, ready=1) as sandboxes:
        await until(lambda: sandboxes.count.ready == 1, sandboxes)
        [lease] = leases.recorded()
        leases.kill_marked({lease.id}, 10)
        async with sandboxes.lease() as sandbox:
            assert sandbox.id != lease.id
            assert (await sandbox.exec(Python("print(1)"))).is_ok
        assert sandboxes.count.unhealthy == 1


async def test_a_sandbox_that_is_killed_at_work_is_the_infrastructures_fault() -> None:
    async with pool("bubblewrap") as sandboxes, sandboxes.lease() as sandbox:
        began = asyncio.Event()
        running = asyncio.create_task(
            sandbox.exec(Python("print(1, flush=True)\nwhile True: pass"), on_output=lambda *_: began.set())
        )
        async with asyncio.timeout(20):
            await began.wait()
        leases.kill_marked({sandbox.id}, 10)
        with pytest.raises(LostError) as lost:
            await running
        assert lost.value.fault == "infra"


async def test_leases_beyond_the_most_wait_in_order(name: str) -> None:
    async with pool(name, ready=1, most=1) as sandboxes:
        served: list[int] = []

        async def serve(number: int) -> None:
            async with sandboxes.lease() as sandbox:
                served.append(number)
                assert sandboxes.count.leased == 1
                await sandbox.exec(Python("pass"))

        await asyncio.gather(*(serve(number) for number in range(4)))
        assert served == [0, 1, 2, 3]
        assert sandboxes.count.waited_s > 0


async def test_waiting_has_a_deadline_and_leaves_no_trace_in_the_queue(name: str) -> None:
    async with pool(name, ready=1, most=1) as sandboxes, sandboxes.lease():
        with pytest.raises(FullError, match=r"within 0\.05 s"):
            await sandboxes.take(wait_s=0.05)
        waiting = asyncio.create_task(sandboxes.take())
        await until(lambda: sandboxes.count.waiting == 1, sandboxes)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert sandboxes.count.waiting == 0


class FirstStart:
    """A backend whose first start does something else before."""

    name = "first start"

    def __init__(self, before: Callable[[], Awaitable[object]]) -> None:
        self.before, self.attempts = before, 0

    def describe(self) -> str:
        return self.name

    async def create(self, limits: Limits) -> Sandbox:
        self.attempts += 1
        if self.attempts == 1:
            await self.before()
        return await backend("bubblewrap").create(limits)

    async def close(self) -> None:
        pass


async def test_a_failure_of_the_backend_reaches_the_waiting_caller_and_the_next_one_tries_again() -> None:
    async def fail() -> None:
        raise LostError("not now")

    async with Pool(FirstStart(fail), TIGHT, 1, 1) as sandboxes:
        with pytest.raises(LostError, match="not now"):
            await sandboxes.take()
        async with sandboxes.lease() as sandbox:
            assert (await sandbox.exec(Python("print(1)"))).is_ok
        assert sandboxes.count.failed == 1


async def test_closing_ends_leased_and_ready_sandboxes_and_refuses_new_leases(name: str) -> None:
    sandboxes = pool(name, ready=2)
    held = await sandboxes.take()
    waiting = [asyncio.create_task(sandboxes.take()) for _ in range(5)]
    await until(lambda: sandboxes.count.leased == 4, sandboxes)
    await sandboxes.close()
    await sandboxes.close()
    refused = [task for task in waiting if isinstance(task.exception(), ClosedError)]
    assert refused
    assert list(leases.recorded()) == []
    assert running() == set()
    with pytest.raises(SandboxError):
        await held.exec(Python("pass"))
    with pytest.raises(ClosedError):
        await sandboxes.take()


def test_one_pool_serves_event_loops_of_several_threads(name: str) -> None:
    sandboxes = pool(name, ready=2)
    outputs: list[bytes] = []

    async def serve() -> None:
        for _ in range(3):
            async with sandboxes.lease() as sandbox:
                outputs.append((await sandbox.exec(Python("print(1)"))).stdout)
        await until(lambda: not sandboxes.count.starting, sandboxes)

    threads = [threading.Thread(target=asyncio.run, args=(serve(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(sandboxes.close())
    assert outputs == [b"1\n"] * 9
    assert running() == set()


def test_a_start_that_ends_with_its_event_loop_is_repeated_for_callers_on_another_loop() -> None:
    sandboxes = Pool(FirstStart(lambda: asyncio.Event().wait()), TIGHT, 1, 1)
    is_begun = threading.Event()

    async def begins_and_ends() -> None:
        with pytest.raises(FullError):
            await sandboxes.take(wait_s=0)
        is_begun.set()
        await until(lambda: sandboxes.count.waiting == 1, sandboxes)

    async def waits() -> None:
        async with sandboxes.lease(wait_s=20) as sandbox:
            assert (await sandbox.exec(Python("print(1)"))).is_ok
        await sandboxes.close()

    thread = threading.Thread(target=asyncio.run, args=(begins_and_ends(),))
    thread.start()
    assert is_begun.wait(20)
    asyncio.run(waits())
    thread.join()
    assert sandboxes.backend.attempts == 2  # type: ignore[attr-defined]


# --- leftovers --------------------------------------------------------------------------------------------------

OWNER = """
import asyncio, os, sys, warnings
warnings.simplefilter("ignore")
from agentrl_sandbox import Pool, Limits
async def main():
    pool = Pool(sys.argv[1], Limits(), 2, 8)
    sandbox = await pool.take()
    await sandbox.run("import subprocess; p = subprocess.Popen(['sleep', '1000'], start_new_session=True)")
    if sys.argv[2] == "fork" and os.fork() == 0:
        import time
        time.sleep(1000)  # holds every channel open after its parent was killed
    print(sandbox.id, flush=True)
    if sys.argv[2] == "exit":
        return
    await asyncio.Event().wait()
asyncio.run(main())
"""


def owner(name: str, how: str) -> subprocess.Popen[str]:
    """A process that holds sandboxes; it has printed that it does."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", OWNER, name, how],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout
    assert select.select([process.stdout], [], [], 40)[0], "it made no sandbox"
    assert process.stdout.readline().startswith("agentrl-")
    IDS.update(lease.id for lease in leases.recorded())
    return process


def remains() -> list[str]:
    """Everything of sandboxes that is still there."""
    known = {lease.id for lease in leases.recorded()}
    cages = [cage for lease_id in IDS if (cage := cgroups.cage(lease_id))]
    mine = [path for cage in cages for path in cage.paths if Path(path).exists()]
    return [*known, *mine, *running(), *(str(path) for path in (leases.folder() / "work").glob("*"))]


def are_leftovers_gone() -> bool:
    """As `agentrl doctor` has it."""
    return next(row[1] for row in checks() if row[0] == "leftover sandboxes")


@pytest.mark.parametrize("how", ["stay", "fork"])
def test_after_kill_9_of_the_owner_gc_leaves_nothing(name: str, how: str) -> None:
    process = owner(name, how)
    process.kill()
    process.wait()
    count = len(list(leases.recorded()))
    assert count >= 1
    folders = [Path(path) for lease in leases.recorded() for path in lease.cgroups]
    lines = gc.collect()
    assert len(lines) == count
    assert all(line.endswith("removed") for line in lines), lines
    assert remains() == []
    assert [path for path in folders if path.exists()] == []
    assert gc.collect() == []
    os.killpg(process.pid, signal.SIGKILL) if how == "fork" else None
    assert process.stdout
    process.stdout.close()


async def test_the_next_start_removes_what_was_left_behind() -> None:
    process = owner("bubblewrap", "stay")
    process.kill()
    process.communicate()
    assert not are_leftovers_gone()
    async with pool("bubblewrap"):
        assert {lease.owner.pid for lease in leases.recorded()} <= {os.getpid()}
    assert remains() == []
    assert are_leftovers_gone()


def test_a_process_that_forgets_its_pool_leaves_nothing(name: str) -> None:
    process = owner(name, "exit")
    process.communicate(timeout=30)
    assert remains() == []


LATE = """
import asyncio, atexit, sys, threading, warnings
warnings.simplefilter("ignore")
from agentrl_sandbox import Pool, Python
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
def wait(work): return asyncio.run_coroutine_threadsafe(work, loop).result(60)
async def use():
    global pool
    pool = Pool(sys.argv[1], ready=4, most=4)
    async with pool.lease() as sandbox:
        print((await sandbox.exec(Python("print(42)"))).stdout)
atexit.register(lambda: print(wait(pool.close())))
wait(use())
"""


def test_a_pool_can_be_closed_while_the_interpreter_ends(name: str) -> None:
    """Executors take nothing more by then."""
    ended = subprocess.run([sys.executable, "-c", LATE, name], capture_output=True, text=True, timeout=60, check=False)
    IDS.update(lease.id for lease in leases.recorded())
    assert (ended.stdout, ended.stderr) == ("b'42\\n'\nNone\n", "")
    assert remains() == []


def test_after_kill_9_a_container_is_removed() -> None:
    backend("docker")
    process = owner("docker", "stay")
    process.kill()
    process.communicate()
    lines = gc.collect()
    assert lines
    assert all(line.endswith("removed") for line in lines), lines
    assert remains() == []


async def test_gc_leaves_alone_what_has_an_owner() -> None:
    async with pool("bubblewrap") as sandboxes, sandboxes.lease() as sandbox:
        assert gc.collect() == []
        assert (await sandbox.exec(Python("print(1)"))).is_ok


def test_a_lease_that_was_written_and_never_began_is_struck_out() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    owner_ = leases.Owner(gone.pid, 1, leases.me().boot, leases.me().namespace)
    lease = leases.write(leases.Lease(leases.new_id(), "bubblewrap", owner_, ("/sys/fs/cgroup/memory/none",)))
    assert gc.collect() == [f"sandbox {lease.id} (bubblewrap, of process {gone.pid}) removed"]


def test_a_broken_lease_stops_nobody() -> None:
    (leases.folder() / "x.lease").write_text("{")
    (leases.folder() / "y.lease").write_text(json.dumps({"id": 1}))
    assert list(leases.recorded()) == []
    for name in ("x", "y"):
        (leases.folder() / f"{name}.lease").unlink()


def test_a_forked_process_does_not_use_its_parents_pool() -> None:
    sandboxes = pool("bubblewrap")
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(sandboxes.take())
        except ClosedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


async def test_a_machine_that_can_start_no_process_is_an_error_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    made = backend(name)

    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", refused)
    with pytest.raises(LostError, match="temporarily unavailable") as lost:
        await made.create(TIGHT)
    assert lost.value.fault == "infra"
    assert remains() == []


async def test_a_container_that_several_remove_at_once_is_removed() -> None:
    sandbox = await backend("docker").create(TIGHT)
    [lease] = [lease for lease in leases.recorded() if lease.id == sandbox.id]
    await asyncio.gather(sandbox.close(), *(asyncio.to_thread(docker.remove, lease.docker, lease.id) for _ in range(3)))
    assert remains() == []
