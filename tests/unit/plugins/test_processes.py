"""Nothing is left of a process whose start is cancelled, and nothing waits for it."""

from __future__ import annotations

import asyncio
import gc
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from agentrl.env import GroupProcess, start_process


async def test_a_process_whose_start_is_cancelled_ends() -> None:
    for turns in range(40):
        starting = asyncio.ensure_future(start_process(sys.executable, "-c", f"import time; time.sleep({600 + turns})"))
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        started = (await asyncio.gather(starting, return_exceptions=True))[0]
        if isinstance(started, GroupProcess):
            await started.end()
    assert not running("import time; time.sleep(6")


async def test_the_pipes_of_a_process_are_closed_also_if_its_end_is_cancelled() -> None:
    process = await start_process("sleep", "601", stdout=asyncio.subprocess.PIPE)
    ending = asyncio.ensure_future(process.end())
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait([ending])
    assert ending.cancelled()
    stream = process.process.stdout
    assert stream is not None
    assert await asyncio.wait_for(stream.read(), 20) == b""
    assert process._transport.is_closing()
    await asyncio.wait_for(process.exited(), 20)  # else the next test finds it still running


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("turns", [1, 3, 5])
async def test_a_loop_that_ends_does_not_wait_for_a_process_that_is_starting(turns: int) -> None:
    before = asyncio.all_tasks()
    starting = asyncio.ensure_future(start_process("sleep", f"60{turns}", stdin=-1, stdout=-1, stderr=-1))
    for _ in range(turns):
        await asyncio.sleep(0)
    tasks = asyncio.all_tasks() - before
    for task in tasks:  # as `asyncio.run` does at the end
        task.cancel()
    assert (await asyncio.wait(tasks, timeout=20))[1] == set()
    assert starting.cancelled()
    gc.collect()
    while running(f"sleep\x0060{turns}"):  # noqa: ASYNC110  (it has been killed; nobody announces that it is gone)
        await asyncio.sleep(0.01)


def running(code: str) -> list[int]:
    """The processes with this text in their command lines."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            if code.encode() in file.read_bytes():
                found.append(int(file.parent.name))
    return found
