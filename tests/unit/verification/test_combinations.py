"""The page of combinations says what the code does, and the runs have every pair that CPUs accept."""

from __future__ import annotations

import itertools
from pathlib import Path

from agentrl.config import keys
from verification.combinations import ABSENT, FEATURES, page, pairs, refusal, runs


def test_the_page_is_what_the_code_says() -> None:
    shown = Path("docs/combinations.md").read_text()
    assert shown == page(), "python -m verification.combinations > docs/combinations.md"


def test_what_agentrl_does_not_have_is_on_the_page_with_what_a_run_says_of_it() -> None:
    _, _, section = Path("docs/combinations.md").read_text().partition("## What agentrl does not have")
    rows = [row.strip("| ").split(" | ") for row in section.partition("## ")[0].splitlines() if row.startswith("| ")]
    assert [row[0] for row in rows[1:]] == [*ABSENT]
    assert all(len(row) == 3 for row in rows)
    said = [next(why for why in keys.ABSENT.values() if why in row[2]) for row in rows[1:]]
    assert {*said} == {*keys.ABSENT.values()}


def test_quantized_communication_needs_a_gpu() -> None:
    assert "zero_quantized_weights, whose kernels need a GPU" in (refusal("cpu", "ZeRO++") or "")
    assert refusal("gpu", "ZeRO++") is None
    assert "ZeRO++" not in {name for run in runs() for name in run}


def test_every_pair_that_cpus_accept_is_in_a_run() -> None:
    trained = {frozenset((one, other)) for run in runs() for one in run for other in run}
    assert trained == pairs()
    assert len(runs()) < len(FEATURES)


def test_several_machines_accept_and_refuse_what_one_does() -> None:
    every = [*FEATURES, *itertools.combinations(FEATURES, 2)]
    names = [(each,) if isinstance(each, str) else each for each in every]
    for several, one in (("hosts", "cpu"), ("gpu hosts", "gpu")):
        assert [refusal(several, *each) for each in names] == [refusal(one, *each) for each in names]


def test_a_feature_excludes_another_or_is_refused_with_the_reason() -> None:
    assert refusal("cpu", "merged LoRA", "LoRA adapter") == ""
    assert "needs engines that can sleep" in (refusal("cpu", "colocated") or "")
    assert refusal("gpu", "colocated") is None
