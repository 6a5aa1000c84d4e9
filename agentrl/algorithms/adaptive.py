"""Coefficients that adapt after each step; they are the state of an algorithm."""

from __future__ import annotations

from agentrl.algorithms.config import AlgorithmConfig
from agentrl.types import StepReport

MOST_KL_ERROR = 0.2
MOST_ENTROPY_COEF = 1.0


def adapted(config: AlgorithmConfig, state: dict[str, float], report: StepReport) -> dict[str, float]:
    """Return the state after a step: the coefficients that have a target, moved by what the step metered."""
    out = dict(state)
    if config.kl_target > 0 and "reference_kl" in report.meters:
        out["kl_coef"] = next_kl_coef(config, state.get("kl_coef", config.kl_coef), report)
    if config.entropy_target > 0 and "entropy" in report.meters:
        out["entropy_coef"] = next_entropy_coef(config, state.get("entropy_coef", config.entropy_coef), report)
    return out


def next_kl_coef(config: AlgorithmConfig, coef: float, report: StepReport) -> float:
    """Ziegler et al., arXiv:1909.08593, section 2.2: coef * (1 + K * clip(KL / target - 1, -0.2, 0.2)).

    K = samples of the step / `kl_horizon`, at most 1, as in TRL, OpenRLHF and verl.
    """
    error = min(max(report.meters["reference_kl"] / config.kl_target - 1, -MOST_KL_ERROR), MOST_KL_ERROR)
    return coef * (1 + error * min(1.0, len(report.samples) / config.kl_horizon))


def next_entropy_coef(config: AlgorithmConfig, coef: float, report: StepReport) -> float:
    """Raise the coefficient by `entropy_delta` where the entropy is at most the target, lower it elsewhere.

    Skywork-OR1, arXiv:2505.22312, equation 3.2, without its gate. The coefficient stays within [0, 1].
    """
    step = config.entropy_delta if report.meters["entropy"] <= config.entropy_target else -config.entropy_delta
    return min(max(coef + step, 0.0), MOST_ENTROPY_COEF)
