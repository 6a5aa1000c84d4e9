"""The servers of reward models before a run."""

from __future__ import annotations

import asyncio
import socket

import pytest

from agentrl.config.schema import RewardModelKeys
from agentrl.reward_models import keys


async def test_a_server_may_start_along_with_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(keys, "RETRY_S", 0.0)
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # refuses connections until it listens
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        checking = asyncio.create_task(keys.check_servers([RewardModelKeys(name="rm", url=url)]))
        said = ""
        while not said and not checking.done():
            await asyncio.sleep(0)
            said = capsys.readouterr().out
        assert f"reward model rm: no connection to {url}" in said
        async with await asyncio.start_server(lambda _, writer: writer.close(), sock=reserved):
            await checking
