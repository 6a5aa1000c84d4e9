"""A run that is asked to stop says so at once."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from agentrl.cluster.signals import Stop, Stopped, run_until_stopped


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
