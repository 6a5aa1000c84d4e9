"""The canary passes what is equal within its bound, and nothing else."""

from __future__ import annotations

import math

import pytest

from agentrl.errors import WeightsError
from agentrl.weights.canary import LogprobCanary

IDS = (1, 2, 3)


def test_float32_allows_a_ten_thousandth() -> None:
    canary = LogprobCanary(IDS, "float32")
    assert canary.check([-1.0, -2.00005], [-1.0, -2.0]) == pytest.approx(5e-5)
    with pytest.raises(WeightsError, match="token 2"):
        canary.check([-1.0, -2.0002], [-1.0, -2.0])


def test_bfloat16_is_calibrated_by_its_first_check() -> None:
    canary = LogprobCanary(IDS, "bfloat16")
    canary.check([-1.0, -2.09], [-1.0, -2.0])  # 0.015 on average
    canary.check([-1.0, -2.3], [-1.0, -2.0])
    with pytest.raises(WeightsError, match=r"0\.067 on average, allowed 0\.06"):
        canary.check([-1.0, -2.4], [-1.0, -2.0])


def test_one_token_of_a_long_text_may_differ_in_bfloat16() -> None:
    """Seen in a run of PPO: one token of 40 was 0.43 apart, all others less than 0.1, and float32 lay between them."""
    canary = LogprobCanary(tuple(range(41)), "bfloat16")
    canary.check([-1.02] * 40, [-1.0] * 40)
    canary.check([-1.02] * 39 + [-1.43], [-1.0] * 40)
    with pytest.raises(WeightsError, match="on average"):
        canary.check([-1.1] * 40, [-1.0] * 40)


def test_calibration_does_not_swallow_a_gross_fault() -> None:
    canary = LogprobCanary(IDS, "bfloat16")
    with pytest.raises(WeightsError):
        canary.check([-9.0, -2.0], [-1.0, -2.0])


def test_a_given_tolerance_is_absolute() -> None:
    LogprobCanary(IDS, "bfloat16", 0.3).check([-1.0, -20.29], [-1.0, -20.0])
    with pytest.raises(WeightsError):
        LogprobCanary(IDS, "bfloat16", 0.3).check([-1.0, -20.31], [-1.0, -20.0])


@pytest.mark.parametrize("wrong", [[-1.0], [-1.0, math.nan], [-1.0, -math.inf]])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_missing_and_broken_numbers_fail(wrong: list[float], dtype: str) -> None:
    with pytest.raises(WeightsError):
        LogprobCanary(IDS, dtype).check(wrong, [-1.0, -2.0])
