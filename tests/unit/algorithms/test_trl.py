"""Advantages equal those of TRL 1.16.0 on one fixed batch."""

from __future__ import annotations

import pytest

from tests.unit.algorithms.cases import advantages, algorithm, group, trajectory
from tests.unit.algorithms.trl_reference import GROUP, REWARDS

# fmt: off
# Printed by trl_reference.py with TRL 1.16.0 in float32.
TRL = {
    "grpo": [0.8658754229545593, -0.8658754229545593, -0.8658754229545593, 0.8658754229545593, 0.28908148407936096, -1.4839515686035156, 0.5974350571632385, 0.5974350571632385],  # noqa: E501
    "dr_grpo": [0.5, -0.5, -0.5, 0.5, 0.375, -1.9249999523162842, 0.7749999761581421, 0.7749999761581421],
    "rloo": [0.6666666269302368, -0.6666666865348816, -0.6666666865348816, 0.6666666269302368, 0.5, -2.566666603088379, 1.0333333015441895, 1.0333333015441895],  # noqa: E501
}
# fmt: on


@pytest.mark.parametrize("name", TRL)
def test_advantages_equal_those_of_trl(name: str) -> None:
    groups = [
        group(*(trajectory(member, reward) for member, reward in enumerate(REWARDS[start : start + GROUP])))
        for start in range(0, len(REWARDS), GROUP)
    ]
    got = [first for first, *_ in advantages(algorithm(name), *groups)]
    assert got == pytest.approx(TRL[name], abs=1e-5)
