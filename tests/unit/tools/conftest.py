"""A service that fails is asked for a known-good answer once, except where a test is about asking it again."""

from __future__ import annotations

import pytest
from agentrl_tools import known_good


@pytest.fixture(autouse=True)
def asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_good, "RETRY_S", 0.0)


@pytest.fixture
def asked_again(asked_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The known-good request is repeated until it succeeds, however slow the machine is at first."""
    monkeypatch.setattr(known_good, "RETRY_S", 30.0)
    monkeypatch.setattr(known_good, "PAUSE_S", 0.01)
