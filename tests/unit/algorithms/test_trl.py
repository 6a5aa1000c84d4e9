"""Advantages equal those of TRL 1.16.0 on one fixed batch.

TRL 1.16.0 has neither PPO nor a critic. Its distillation trains on the teacher's whole distribution, and agentrl's on
the sampled tokens: test_distillation.py shows that the expected gradient is the same. With `scale_rewards="batch"` it
divides by the deviation of rewards without their group means, which no algorithm of agentrl does.
"""

from __future__ import annotations

import numpy as np
import pytest

from agentrl.algorithms.driver import assign
from agentrl.algorithms.sample import Sample, samples_of
from agentrl.algorithms.shaping import overlong
from tests.unit.algorithms.cases import advantages, algorithm, group, trajectory
from tests.unit.algorithms.trl_reference import BETA, BUFFER, GROUP, LENGTHS, LIMIT, OLD, REFERENCE, REWARDS

# fmt: off
# Printed by trl_reference.py with TRL 1.16.0 in float32.
TRL = {
    "grpo": [0.8658754229545593, -0.8658754229545593, -0.8658754229545593, 0.8658754229545593, 0.28908148407936096, -1.4839515686035156, 0.5974350571632385, 0.5974350571632385],  # noqa: E501
    "dr_grpo": [0.5, -0.5, -0.5, 0.5, 0.375, -1.9249999523162842, 0.7749999761581421, 0.7749999761581421],
    "overlong": [-0.3333333333333333, -1.0, 0.0, -0.6666666666666666, 0.0, -1.0, -0.6666666666666666, 0.0],
    "rloo_kl": [0.44899341464042664, -0.4706799387931824, -0.709262490272522, 0.7309490442276001, 0.4644979238510132, -2.7582526206970215, 0.8378539681434631, 1.4559009075164795],  # noqa: E501
    "rloo": [0.6666666269302368, -0.6666666865348816, -0.6666666865348816, 0.6666666269302368, 0.5, -2.566666603088379, 1.0333333015441895, 1.0333333015441895],  # noqa: E501
}
# fmt: on


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
def test_advantages_equal_those_of_trl(name: str) -> None:
    groups = [
        group(*(trajectory(member, reward) for member, reward in enumerate(REWARDS[start : start + GROUP])))
        for start in range(0, len(REWARDS), GROUP)
    ]
    got = [first for first, *_ in advantages(algorithm(name), *groups)]
    assert got == pytest.approx(TRL[name], abs=1e-5)


def samples() -> list[list[Sample]]:
    """The completions with their lengths, and the logprobs of the old policy and the reference."""
    members = [trajectory(n % GROUP, REWARDS[n], lengths=(length,)) for n, length in enumerate(LENGTHS)]
    groups = samples_of([group(*members[start : start + GROUP]) for start in range(0, len(members), GROUP)])
    for n, sample in enumerate(sample for each in groups for sample in each):
        sample.columns |= {"old": np.array(OLD[n]), "reference": np.array(REFERENCE[n])}
    return groups


def test_the_soft_overlong_punishment_equals_trls() -> None:
    earned = [overlong(sample, LIMIT, BUFFER, 1.0) for members in samples() for sample in members]
    assert [sum(r.value for r in rewards) for rewards in earned] == pytest.approx(TRL["overlong"], abs=1e-5)


def test_rloos_advantages_with_a_kl_in_the_reward_equal_trls() -> None:
    rule, groups = algorithm("rloo", kl_coef=BETA, kl_in="reward", kl_estimator="k1"), samples()
    assign(rule, groups)
    got = [sample.advantages.tolist() for members in groups for sample in members]
    assert [row[0] for row in got] == pytest.approx(TRL["rloo_kl"], abs=1e-5)
    assert all(set(row) == {row[0]} for row in got), "every token has that of its completion"
