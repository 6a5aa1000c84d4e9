"""The state of an algorithm: coefficients that adapt after each step, and what a class keeps of its own."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np

from agentrl.algorithms.config import AlgorithmConfig
from agentrl.errors import AlgorithmError, CreditError
from agentrl.types import StepReport

MOST_KL_ERROR = 0.2
METERS = {"kl_target": "reference_kl", "entropy_target": "entropy", "kl_stop": "policy_kl"}
"""What the objective has to meter for a key."""
TAKEN = ("kl_coef", "entropy_coef", "reward_count", "reward_mean", "reward_squares", "reward_size")
"""What agentrl keeps in the state."""


def adapted(config: AlgorithmConfig, state: dict[str, float], report: StepReport) -> dict[str, float]:
    """Return the state after a step: the coefficients that have a target, moved by what the step metered.

    Raises AlgorithmError if the step did not meter what has a target.
    """
    out = dict(state)
    check_meters(config, report.meters)
    if config.kl_target > 0:
        out["kl_coef"] = next_kl_coef(config, state.get("kl_coef", config.kl_coef), report)
    if config.entropy_target > 0:
        out["entropy_coef"] = next_entropy_coef(config, state.get("entropy_coef", config.entropy_coef), report)
    return out


def check_meters(config: AlgorithmConfig, metered: Collection[str]) -> None:
    """Raise AlgorithmError if the objective did not meter what a key needs."""
    for key, meter in METERS.items():
        if getattr(config, key) > 0 and meter not in metered:
            raise AlgorithmError(
                f"algorithm.{key} needs the meter {meter!r}, which the objective did not give: call "
                f"terms.meter({meter!r}, values) in it, or leave algorithm.{key} out"
            )


def checked_state(algorithm: str, state: object, before: Mapping[str, float]) -> dict[str, float]:
    """Return the state as floats of Python, which a checkpoint can hold.

    Raises CreditError for anything else, and if what agentrl keeps in it differs from the state `before`.
    """
    if not isinstance(state, dict):
        raise CreditError(f"{algorithm}: state is {state!r}, not a dict of numbers")
    for name, value in state.items():
        if not (isinstance(value, int | float | np.integer | np.floating) and math.isfinite(value)):
            raise CreditError(f"{algorithm}: state[{name!r}] is {value!r}, but a checkpoint needs a finite number")
    for name in TAKEN:
        if state.get(name) != before.get(name):
            raise CreditError(f"{algorithm}: state[{name!r}] belongs to agentrl: choose another name")
    return {str(name): float(value) for name, value in state.items()}


def next_kl_coef(config: AlgorithmConfig, coef: float, report: StepReport) -> float:
    """Ziegler et al., arXiv:1909.08593, section 2.2: coef * (1 + K * clip(KL / target - 1, -0.2, 0.2)).

    K = samples of the step / `kl_horizon`, as in TRL, OpenRLHF and verl; here at most 1, so that the coefficient stays
    positive. It never exceeds the bound of its key.
    """
    error = min(max(report.meters["reference_kl"] / config.kl_target - 1, -MOST_KL_ERROR), MOST_KL_ERROR)
    return min(coef * (1 + error * min(1.0, len(report.samples) / config.kl_horizon)), bound(config, "kl_coef"))


def next_entropy_coef(config: AlgorithmConfig, coef: float, report: StepReport) -> float:
    """Raise the coefficient by `entropy_delta` where the entropy is at most the target, lower it elsewhere.

    Skywork-OR1, arXiv:2505.22312, equation 3.2, without its gate. The coefficient stays within the bounds of its key.
    """
    step = config.entropy_delta if report.meters["entropy"] <= config.entropy_target else -config.entropy_delta
    return min(max(coef + step, 0.0), bound(config, "entropy_coef"))


def bound(config: AlgorithmConfig, key: str) -> float:
    """Return the greatest value of a key."""
    bounds = (getattr(item, "le", None) for item in type(config).model_fields[key].metadata)
    return min((float(most) for most in bounds if most is not None), default=math.inf)
