"""Coefficients that adapt, against the formulas of their papers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.algorithms.base import RunShape
from agentrl.algorithms.driver import adapt
from agentrl.algorithms.grpo import GRPO
from agentrl.errors import AlgorithmError
from agentrl.types import SampleId, StepReport


def report(samples: int = 64, learned: bool = True, **meters: float) -> StepReport:
    return StepReport(
        loss=0.0,
        grad_norm=1.0,
        lr=1e-4,
        tokens=1,
        optimizer_steps=int(learned),
        samples=tuple(SampleId(0, member) for member in range(samples)),
        seconds=1.0,
        meters=meters,
    )


@given(kl=st.floats(0, 10), target=st.floats(0.01, 1), samples=st.integers(1, 512), horizon=st.integers(512, 20_000))
def test_the_kl_coefficient_follows_ziegler_section_2_2(kl: float, target: float, samples: int, horizon: int) -> None:
    """Ziegler et al. 2019, arXiv:1909.08593, section 2.2: the error is clipped to 0.2, K is samples / horizon."""
    rule = GRPO(GRPO.Config(kl_coef=0.1, kl_target=target, kl_horizon=horizon))
    coefficient = 0.1
    for _ in range(3):
        adapt(rule, report(samples, reference_kl=kl))
        error = max(-0.2, min(0.2, (kl - target) / target))
        coefficient *= 1 + error * samples / horizon
        assert rule.state["kl_coef"] == pytest.approx(coefficient)


def test_a_kl_coefficient_stays_positive_however_small_the_horizon() -> None:
    rule = GRPO(GRPO.Config(kl_coef=0.1, kl_target=1.0, kl_horizon=1))
    adapt(rule, report(64, reference_kl=0.0))
    assert rule.state["kl_coef"] == pytest.approx(0.08)


def test_the_entropy_coefficient_grows_below_its_target_shrinks_above_and_is_never_negative() -> None:
    """Skywork-OR1 (He et al. 2025, arXiv:2505.22312, equation 3.2): it moves by delta towards the target."""
    rule = GRPO(GRPO.Config(entropy_target=0.5, entropy_delta=0.01))
    seen = []
    for entropy in (0.4, 0.5, 0.6, 0.6, 0.6):
        adapt(rule, report(entropy=entropy))
        seen.append(round(rule.state["entropy_coef"], 6))
    assert seen == [0.01, 0.02, 0.01, 0.0, 0.0]
    for _ in range(200):
        adapt(rule, report(entropy=0.0))
    assert rule.state["entropy_coef"] == pytest.approx(2.0)


def test_an_adaptive_coefficient_moves_in_steps_and_stays_within_the_bounds_of_its_key() -> None:
    rule = GRPO(GRPO.Config(entropy_coef=5.0, entropy_target=1.0, kl_coef=90.0, kl_target=1e-6, kl_horizon=1))
    adapt(rule, report(entropy=0.2, reference_kl=1.0))
    assert rule.state["entropy_coef"] == pytest.approx(5.005)
    for _ in range(1200):
        adapt(rule, report(entropy=0.2, reference_kl=1.0))
    assert rule.state == {"entropy_coef": 10.0, "kl_coef": 100.0}


def test_after_of_a_subclass_leaves_the_coefficients_that_adapt_in_place() -> None:
    class Counting(GRPO):
        def after(self, report: StepReport) -> None:
            self.state["steps"] = self.state.get("steps", 0) + np.int64(1)

    rule = Counting(Counting.Config(kl_coef=0.1, kl_target=1.0, kl_horizon=1))
    adapt(rule, report(reference_kl=0.0))
    assert rule.state == {"kl_coef": pytest.approx(0.08), "steps": 1.0}
    assert {type(value) for value in rule.state.values()} == {float}, "a checkpoint holds floats of Python"


@pytest.mark.parametrize("value", ["much", math.nan, None, np.zeros(2)])
def test_a_state_that_a_checkpoint_cannot_hold_is_refused_by_name(value: Any) -> None:
    class Odd(GRPO):
        def after(self, report: StepReport) -> None:
            self.state["scale"] = value

    with pytest.raises(AlgorithmError, match=r"^Odd: state\['scale'\] is .*a finite number"):
        adapt(Odd(), report())


def test_after_is_not_called_for_a_step_without_meters() -> None:
    class Drift(GRPO):
        def after(self, report: StepReport) -> None:
            self.state["drift"] = report.meters["policy_kl"]

    rule = Drift()
    adapt(rule, report(learned=False))
    assert rule.state == {}
    adapt(rule, report(policy_kl=0.5))
    assert rule.state == {"drift": 0.5}


@pytest.mark.parametrize("name", ["kl_coef", "entropy_coef", "reward_count"])
def test_what_agentrl_keeps_in_the_state_is_not_for_an_algorithm_to_set(name: str) -> None:
    class Meddling(GRPO):
        def after(self, report: StepReport) -> None:
            self.state[name] = 50.0

    with pytest.raises(AlgorithmError, match=rf"Meddling: state\['{name}'\] belongs to agentrl: choose another name"):
        adapt(Meddling(), report(policy_kl=0.5))


def test_a_step_that_learned_nothing_and_a_fixed_coefficient_move_nothing() -> None:
    adaptive = GRPO(GRPO.Config(kl_coef=0.1, kl_target=0.01, entropy_target=0.5))
    adapt(adaptive, report(learned=False, reference_kl=9.0, entropy=9.0))
    fixed = GRPO(GRPO.Config(kl_coef=0.1, entropy_coef=0.1))
    adapt(fixed, report(reference_kl=9.0, entropy=9.0))
    assert adaptive.state == fixed.state == {}


@pytest.mark.parametrize(("target", "meter"), [("kl_target", "reference_kl"), ("entropy_target", "entropy")])
def test_a_target_of_what_the_objective_does_not_meter_is_refused(target: str, meter: str) -> None:
    rule = GRPO(GRPO.Config(kl_coef=0.1, **{target: 1.0}))
    with pytest.raises(AlgorithmError, match=f"algorithm.{target} needs the meter '{meter}', which the objective"):
        adapt(rule, report())
    adapt(rule, report(learned=False))


def test_a_bonus_that_may_grow_needs_every_token() -> None:
    assert GRPO(GRPO.Config()).skips_zero_advantages
    assert not GRPO(GRPO.Config(entropy_target=0.5)).skips_zero_advantages


def test_a_key_of_the_loss_that_nothing_reads_is_named_with_what_it_needs() -> None:
    rule = GRPO(GRPO.Config(loss="policy_gradient", correction="tis"), RunShape(updates=1))
    idle = rule.idle_keys()
    assert {"clip_low", "clip_high", "dual_clip", "geometric_low", "kl_stop", "reference_ema"} <= set(idle)
    assert "old_logprobs" in GRPO(GRPO.Config(loss="policy_gradient", old_logprobs="sampler")).idle_keys()
    assert idle["kl_stop"] == "learner.updates_per_batch or learner.epochs above 1"
    assert "kl_stop" not in GRPO(GRPO.Config(), RunShape(updates=2)).idle_keys()
    config = GRPO.Config(loss="dual_clip", correction="geometric_mask", kl_coef=0.1, reference_every=5)
    read = {"dual_clip", "geometric_low", "geometric_high", "tis_cap", "reference_every", "reference_ema"}
    assert not read & set(GRPO(config).idle_keys())
