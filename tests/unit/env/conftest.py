from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agentrl.env import close_shared


@pytest.fixture(autouse=True)
async def shared_is_closed() -> AsyncIterator[None]:
    """Every test ends with its shared resources closed and no task left behind."""
    yield
    await close_shared()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks left behind: {left}"
