"""Whole runs with many features at once over hosts: every pair of docs/combinations.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import Host, hosts, join_all
from tests.cluster.runs import AGENTRL, NEEDS_HOSTS
from tests.real.runs import QUICK
from verification.check import Setting
from verification.combinations import merged, runs
from verification.runs import combined

pytestmark = NEEDS_HOSTS

PLACED = {"engine.nodes": "engine", "learner.nodes": "learner", "rollout.nodes": "engine"}
NUMBERS = [pytest.param(n, marks=[pytest.mark.long] * (n > 1)) for n in range(1, len(runs()) + 1)]


@pytest.fixture(scope="module")
def head() -> Iterator[Host]:
    """The head of a cluster of three hosts: two for the learner, and itself for engines and workers."""
    with hosts("engine", "learner-1", "learner-2") as (head, *learners):
        head.start_ray("engine")
        join_all(head, dict.fromkeys(learners, "learner"))
        yield head


@pytest.mark.parametrize("number", NUMBERS)
def test_a_run_with_many_features_is_lawful_and_is_replayed_over_hosts(number: int, head: Host, shared: Path) -> None:
    flags = merged(*runs()[number - 1])
    assert flags is not None
    setting = Setting("cpu", 0, shared, agentrl=tuple(head.command(*(f"{k}={v}" for k, v in QUICK.items()), *AGENTRL)))
    said = combined(setting, PLACED | flags)
    assert said.startswith("2 steps, 16 samples trained, 0 restarts, the conservation law holds")
    assert said.endswith("a replay gives the same weights")
