"""Environments of other libraries fail the checks that the pages of their adapters name, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from agentrl.checking.catalogue import CHECKS
from agentrl.checking.check import Level, Result, Status, Subject
from agentrl.checking.running import run_checks

QUICK = {check.name for check in CHECKS if check.level in (Level.CONTRACT, Level.TRUTH)} | {"twins", "state"}
FEW = {"definition", "oracle", "canaries", "empty", "flooding", "leak"}
"""What runs where each check takes seconds to generate the tasks."""
ADAPTED: dict[str, tuple[str, dict[str, Any], set[str], set[str]]] = {
    "gymnasium": ("gym:FrozenLake-v1", {}, QUICK, set()),
    "gymnasium, negative rewards": ("gym:CliffWalking-v1", {"turns": 15}, QUICK, set()),
    "reasoning_gym": ("rg:leg_counting", {"size": 50}, FEW, set()),
    "textarena": ("textarena:Mastermind-v0", {"turns": 10}, QUICK, {"oracle", "echo", "prompt"}),
    "textarena, self-play": ("textarena:TicTacToe-v0", {}, QUICK, {"oracle"}),
}
"""By the module that is wrapped: an environment, its options, the checks to run, and those that it fails."""


@pytest.mark.timeout(240)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # of the libraries
@pytest.mark.parametrize("case", ADAPTED)
def test_an_adapted_environment_fails_what_its_page_says(case: str) -> None:
    library = case.partition(",")[0]
    pytest.importorskip(library, reason=f"{library} is not installed here: `make test` installs it")
    name, options, asked, fails = ADAPTED[case]
    found = list(run_checks(Subject.named(name, options), [check for check in CHECKS if check.name in asked]))
    assert {result.check.name for result in found if result.status is Status.FAILED} == fails, _told(found)
    assert not [result for result in found if result.status is Status.UNCHECKED], _told(found)


def _told(found: list[Result]) -> list[str]:
    return [f"{result.check.name}: {result.text}" for result in found if not result.status.is_fine]
