"""Losses and gradients equal those of TRL 1.16.0 on a fixed batch, in float32."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from agentrl.algorithms import AlgorithmConfig, RunShape
from agentrl.losses import LOSSES
from agentrl.losses.objective import objective
from tests.unit.algorithms.cases import algorithm, assigned, group, trajectory
from tests.unit.losses.tokens import seen
from tests.unit.losses.trl_numbers import MAX_TOKENS, batch

# fmt: off
TRL: dict[str, tuple[float, list[float]]] = {
    "grpo": (-0.0444485, [
        0.0, 0.0, 0.1625434, 0.0, 0.0054601, 0.0035503, 0.0, 0.0, 0.0039947, 0.0033588, -0.0311107, -0.0400067,
        -0.0258857, 0.0, -0.0320981, -0.0346993, -0.0465402, 0.0]),
    "dapo": (-0.2813385, [
        0.0, 0.0, 0.0812717, 0.0, 0.0063701, 0.004142, 0.0, 0.0, 0.0046605, 0.0039186, -0.041481, -0.0533423,
        -0.0345143, 0.0, -0.0427974, -0.0462657, -0.0620535, 0.0]),
    "dr_grpo": (-0.1055019, [
        0.0, 0.0, 0.0304769, 0.0, 0.0023888, 0.0015532, 0.0, 0.0, 0.0017477, 0.0014695, -0.0155554, -0.0200034,
        -0.0129429, 0.0, -0.016049, -0.0173496, -0.0232701, 0.0]),
    "cispo": (0.7903723, [
        0.0163281, 0.0232992, 0.0401034, 0.0034268, 0.0061816, 0.004142, 0.0035279, 0.0033548, 0.0046605, 0.0039186,
        -0.041481, -0.0533423, -0.0345143, -0.0822744, -0.0427974, -0.0462657, -0.0620535, -0.0822744]),
    "gspo": (-0.1099380, [
        0.0627724, 0.0627724, 0.0627724, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -0.0406699, -0.0406699, -0.0406699,
        -0.0406699, -0.0406699, -0.0406699, -0.0406699, -0.0406699]),
    "dual_clip": (-0.3194219, [
        0.0, 0.0, 0.0, 0.0, 0.0063701, 0.004142, 0.0, 0.0, 0.0046605, 0.0039186, -0.041481, -0.0533423, -0.0345143,
        0.0, -0.0427974, -0.0462657, -0.0620535, 0.0]),
    "kl": (0.2619788, [
        0.015383, 0.0178443, 0.0972335, 0.0089043, 0.0107212, 0.0445193, -0.0044107, -0.0040412, -0.0165804,
        -0.0100619, -0.0509997, -0.0777429, -0.0283367, -0.0176008, -0.0470137, -0.0890665, -0.0743171, 0.0645146]),
    "entropy": (-0.5246326, [
        0.0, 0.0, 0.0812717, 0.0, 0.0063701, 0.004142, 0.0, 0.0, 0.0046605, 0.0039186, -0.041481, -0.0533423,
        -0.0345143, 0.0, -0.0427974, -0.0462657, -0.0620535, 0.0]),
    "token_truncate": (-0.1909615, [
        0.0, 0.0, 0.0762389, 0.0, 0.0072159, 0.0031903, 0.0, 0.0, 0.0037438, 0.0050942, -0.0351203, -0.0303858,
        -0.0357545, 0.0, -0.0420603, -0.0427948, -0.0669206, 0.0]),
    "token_mask": (-0.1318793, [
        0.0, 0.0, 0.0762389, 0.0, 0.0072159, 0.0, 0.0, 0.0, 0.0037438, 0.0, -0.0351203, -0.0, -0.0357545, 0.0,
        -0.0420603, -0.0427948, -0.0669206, 0.0]),
    "sequence_truncate": (0.1028682, [
        0.0, 0.0, 0.1056532, 0.0, 0.0064181, 0.0041732, 0.0, 0.0, 0.0046956, 0.0039481, -0.0091577, -0.0117763,
        -0.0076197, 0.0, -0.0094483, -0.010214, -0.0136994, 0.0]),
    "sequence_mask": (0.0307331, [
        0.0, 0.0, 0.0, 0.0, 0.0064181, 0.0041732, 0.0, 0.0, 0.0046956, 0.0039481, 0.0, -0.0, 0.0, 0.0, 0.0, 0.0, -0.0,
        0.0]),
}
# fmt: on
"""(loss, gradient of each token's logprob), printed by `python -m tests.unit.losses.trl_numbers` with trl==1.16.0."""
NO_CORRECTION = {"correction": "none"}
SAME: dict[str, dict[str, Any]] = {
    "grpo": NO_CORRECTION,
    "dapo": NO_CORRECTION,
    "dr_grpo": NO_CORRECTION,
    "cispo": {**NO_CORRECTION, "loss": "cispo", "clip_low": 1.0, "clip_high": 0.3},
    "gspo": {**NO_CORRECTION, "loss": "gspo", "clip_low": 0.05, "clip_high": 0.05},
    "dual_clip": {**NO_CORRECTION, "loss": "dual_clip", "dual_clip": 1.4},
    "kl": {**NO_CORRECTION, "kl_coef": 0.3, "tis_cap": 10.0},
    "entropy": {**NO_CORRECTION, "entropy_coef": 0.2},
    "token_truncate": {"correction": "tis", "tis_cap": 1.3},
    "token_mask": {"correction": "icepop", "tis_floor": 0.8, "tis_cap": 1.3},
    "sequence_truncate": {"correction": "sequence_tis", "tis_cap": 1.3},
    "sequence_mask": {"correction": "sequence_mask", "tis_floor": 0.5, "tis_cap": 1.3},
}
"""The keys with which agentrl computes the same."""
NORMALISED: dict[str, tuple[str, dict[str, Any]]] = {
    "grpo": ("grpo", {"normalization": "sequence"}),
    "gspo": ("gspo", {}),
    "dr_grpo": ("dr_grpo", {}),
    "dapo": ("dapo", {}),
    "cispo": ("cispo", {}),
}
"""The algorithm that divides the summed loss as TRL does; GRPO, a mean over tokens, for the others."""


@pytest.mark.parametrize("case", TRL)
def test_loss_and_gradient_equal_trls(case: str) -> None:
    rows = batch()
    if case == "kl":  # TRL weights the KL by policy / old, agentrl by min(cap, policy / sampler)
        rows = [[replace(token, sampler=token.old) for token in row] for row in rows]
    config = AlgorithmConfig.model_validate({"clip_low": 0.2, "clip_high": 0.28, **SAME[case]})
    here = seen(rows, torch.float32)
    loss = objective(here.terms, config, lambda terms: LOSSES[config.loss](terms, config))
    total = (loss * torch.tensor(_shares(case))).sum()
    total.backward()
    expected, slopes = TRL[case]
    assert here.logprobs.grad is not None
    assert total.item() == pytest.approx(expected, abs=1e-5)
    assert here.logprobs.grad.tolist() == pytest.approx(slopes, abs=1e-5)


def _shares(case: str) -> list[float]:
    """The weight of each token in the summed loss: of the algorithm with the normalisation of TRL's `loss_type`."""
    name, keys = NORMALISED.get(case, ("grpo", {}))
    members = [trajectory(number, float(number), lengths=(len(row),)) for number, row in enumerate(batch())]
    samples = assigned(algorithm(name, RunShape(max_tokens=MAX_TOKENS), **keys), group(*members))
    divisor = sum(sample.share or 0.0 for sample in samples)
    return [weight / divisor for sample in samples for weight in sample.weights.tolist()]
