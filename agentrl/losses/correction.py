"""Corrections of the mismatch between the policy that sampled and the policy that learns. Suffix: A sampled tokens."""
# ruff: noqa: N803, N806

from __future__ import annotations

import torch
from torch import Tensor

from agentrl.losses.config import LossConfig
from agentrl.losses.terms import Terms, bounded_exp


def correction(terms: Terms, config: LossConfig) -> Tensor:
    """Return the factor [A] of each token's policy loss, without gradient, from the ratio old / sampler.

    With `old_logprobs` "sampler" the ratio of the loss corrects for the sampler by itself, and the factor is 1. No
    factor exceeds the cap. A mask gives tokens or sequences outside its bounds the factor 0; they still count in the
    number by which the loss is divided.

    - `tis`: the token's ratio (truncated importance sampling; Yao et al. 2025, "Your Efficient RL Framework Secretly
      Brings You Off-Policy RL Training", fengyao.notion.site/off-policy-rl).
    - `icepop`: the token's ratio if it is within [floor, cap] (IcePop, Ring-1T, arXiv:2510.18855, equations 1 and 2,
      with a floor of 0.5 and a cap of 5; TRL's `token_mask`).
    - `token_mask`: 1 if the token's ratio is within [floor, cap] (verl's token-level rejection sampling).
    - `sequence_tis`: the product of the sequence's ratios (TRL's `sequence_truncate`).
    - `sequence_mask`: the product of the sequence's ratios if it is within [floor, cap] (TRL's `sequence_mask`).
    - `geometric_mask`: the token's ratio if the geometric mean of the sequence's ratios is within [geometric_low,
      geometric_high] (verl's `geo_rs_token_tis`).
    """
    ratio_A, is_kept_A = _ratio(terms, config)
    weight_A = torch.where(is_kept_A, ratio_A.clamp(max=config.tis_cap), 0.0)
    terms.meter("importance_mean", weight_A)
    terms.meter("importance_square", weight_A.square())
    terms.meter("importance_capped", is_kept_A & (ratio_A > config.tis_cap))
    terms.meter("importance_dropped", ~is_kept_A)
    return weight_A


def _ratio(terms: Terms, config: LossConfig) -> tuple[Tensor, Tensor]:
    """Return the untruncated factor and the mask of what is kept."""
    difference_A = terms.old.detach() - terms.sampler
    ratio_A = bounded_exp(difference_A)
    all_A = torch.ones_like(ratio_A, dtype=torch.bool)
    if config.old_logprobs == "sampler":
        return torch.ones_like(ratio_A), all_A
    match config.correction:
        case "tis":
            return ratio_A, all_A
        case "icepop":
            return ratio_A, _is_within(ratio_A, config.tis_floor, config.tis_cap)
        case "token_mask":
            return torch.ones_like(ratio_A), _is_within(ratio_A, config.tis_floor, config.tis_cap)
        case "sequence_tis":
            return bounded_exp(terms.by_sequence(difference_A, "sum")), all_A
        case "sequence_mask":
            product_A = bounded_exp(terms.by_sequence(difference_A, "sum"))
            return product_A, _is_within(product_A, config.tis_floor, config.tis_cap)
        case "geometric_mask":
            mean_A = bounded_exp(terms.by_sequence(difference_A))
            return ratio_A, _is_within(mean_A, config.geometric_low, config.geometric_high)
    return torch.ones_like(ratio_A), all_A


def _is_within(ratio_A: Tensor, low: float, high: float) -> Tensor:
    return (ratio_A >= low) & (ratio_A <= high)
