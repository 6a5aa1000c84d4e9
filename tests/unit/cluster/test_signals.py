"""A run that is asked to stop says so at once."""

from __future__ import annotations

import asyncio
import signal

import pytest

from agentrl.cluster.signals import Stop, Stopped


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
