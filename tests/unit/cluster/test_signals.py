"""A run that is asked to stop says so at once."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from agentrl.cluster.signals import Stop, Stopped, run_until_stopped, to_the_end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_stop_is_reported_while_something_blocks_the_loop(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    stop, before = Stop(), signal.getsignal(number)
    with stop.on_signals():
        signal.raise_signal(number)  # nothing is awaited: the loop is blocked
        assert f"{number.name}: stopping" in capfd.readouterr().err
        with pytest.raises(Stopped, match=number.name):
            await stop.cut(asyncio.Event().wait())
    assert signal.getsignal(number) is before


async def test_a_stop_counts_though_nobody_reads_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise BrokenPipeError

    stop = Stop()
    monkeypatch.setattr(os, "write", broken)
    with stop.on_signals():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(Stopped, match="SIGINT"):
            await stop.cut(asyncio.Event().wait())


async def test_a_cancellation_waits_for_what_must_come_to_its_end() -> None:
    begun, allowed, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def clean_up() -> None:
        begun.set()
        await allowed.wait()
        ended.set()

    task = asyncio.create_task(to_the_end(clean_up()))
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    allowed.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_without_a_run_to_stop_keeps_its_effect(number: signal.Signals) -> None:
    async def work() -> None:
        os.kill(os.getpid(), number)

    heard: list[int] = []
    before = signal.signal(number, lambda number, _: heard.append(number))
    try:
        run_until_stopped(work())  # in a thread: this one runs a loop, as in a notebook
    finally:
        signal.signal(number, before)
    assert heard == [number]
