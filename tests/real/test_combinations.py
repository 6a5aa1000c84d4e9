"""Whole runs with many features at once, among them every pair that works on CPUs (docs/combinations.md)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from verification.check import Setting
from verification.combinations import merged, runs
from verification.runs import combined

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


EACH_TIME = 6
"""How many runs there are without `--long`: the first ones, which have 129 of the 151 pairs."""
NUMBERS = [pytest.param(n, marks=[pytest.mark.long] * (n > EACH_TIME)) for n in range(1, len(runs()) + 1)]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_run_with_many_features_is_lawful_and_is_replayed(number: int) -> None:
    flags = merged(*runs()[number - 1])
    assert flags is not None
    with tempfile.TemporaryDirectory(prefix="c-") as folder:
        assert "a replay gives the same weights" in combined(Setting("cpu", 0, Path(folder)), flags)
