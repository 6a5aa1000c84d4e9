"""Whole runs with many features at once, among them every pair that works on CPUs (docs/combinations.md)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

import agentrl
from tests.real.runs import QUICK
from verification.check import BoundError, Setting
from verification.combinations import merged, runs
from verification.runs import combined, replay

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


EACH_TIME = 2
"""How many runs there are without `--long`: the first ones, which have 104 of the 205 pairs."""
NUMBERS = [pytest.param(n, marks=[pytest.mark.long] * (n > EACH_TIME)) for n in range(1, len(runs()) + 1)]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_run_with_many_features_is_lawful_and_is_replayed(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    flags = merged(*runs()[number - 1])
    assert flags is not None
    with tempfile.TemporaryDirectory(prefix="c-") as folder:
        said = combined(setting := Setting("cpu", 0, Path(folder)), flags)
        assert said.startswith("2 steps, 16 samples trained, 0 restarts, the conservation law holds")
        assert said.endswith("a replay gives the same weights")
        if number == 1:
            _notices_other_weights(setting)


def _notices_other_weights(setting: Setting) -> None:
    run = setting.folder / "run"
    metrics, digest = run / "metrics.jsonl", agentrl.Run(run).steps[0].learner.digest
    metrics.write_text(metrics.read_text().replace(digest, "0" * 16))
    with pytest.raises(BoundError, match=r"agentrl replay: step 1: the weights are .+ \(the run itself: lawful\)"):
        replay(setting, run, "lawful")
