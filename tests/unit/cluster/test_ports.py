"""Ports that one process finds and another binds later."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from agentrl.cluster import ports
from agentrl.cluster.ports import free_port
from agentrl.errors import RunError


def test_a_found_port_is_none_that_a_connection_of_another_process_may_take() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(port < first for port in (free_port() for _ in range(20)))


def test_processes_with_the_same_seed_find_different_ports() -> None:
    found = set()
    for _ in range(20):
        random.seed(0)
        found.add(free_port())
    assert len(found) > 1


def test_a_port_on_which_a_process_listens_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    free = free_port()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        monkeypatch.setattr(ports, "PORTS", range(taken, taken + 1))
        with pytest.raises(RunError, match=f"no port from {taken} to {taken} is free"):
            free_port()
    monkeypatch.setattr(ports, "PORTS", range(free, free + 1))
    assert free_port() == free
