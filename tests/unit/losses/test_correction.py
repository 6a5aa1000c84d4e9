"""Each correction against a float64 reference, one token at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentrl.algorithms import AlgorithmConfig
from agentrl.algorithms.config import Correction
from agentrl.losses.correction import correction
from agentrl.losses.terms import means
from tests.unit.losses.tokens import Token, mean, random_rows, seen

BOUNDS = {"tis_cap": 1.6, "tis_floor": 0.6, "geometric_low": 0.8, "geometric_high": 1.3}
CONFIG = AlgorithmConfig.model_validate(BOUNDS)

Formula = Callable[[list[Token], Token], float]


def ratio(token: Token) -> float:
    """The ratio of one token: old / sampler, of the learner's policy before the update and that of the engine."""
    return math.exp(token.old - token.sampler)


def product(row: list[Token]) -> float:
    """The importance ratio of a whole sequence (Precup, Sutton and Singh 2000)."""
    return math.exp(sum(one.old - one.sampler for one in row if one.weight))


def geometric(row: list[Token]) -> float:
    """The geometric mean of a sequence's ratios, as in GSPO (Zheng et al. 2025, arXiv:2507.18071, equation 7)."""
    return math.exp(mean([one.old - one.sampler for one in row if one.weight]))


def within(value: float, low: float = CONFIG.tis_floor, high: float = CONFIG.tis_cap) -> bool:
    return low <= value <= high


def by_tis(row: list[Token], token: Token) -> float:
    """Truncated importance sampling, min(C, ratio): Ionides 2008 ("Truncated Importance Sampling").

    For engines beside learners: Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL
    Training" (fengyao.notion.site/off-policy-rl), which has no numbered equations.
    """
    return min(CONFIG.tis_cap, ratio(token))


def by_icepop(row: list[Token], token: Token) -> float:
    """IcePop: the ratio within [alpha, beta], else 0 (Ling Team 2025, Ring-1T, arXiv:2510.18855, equations 1 and 2)."""
    return ratio(token) * within(ratio(token))


def by_token_mask(row: list[Token], token: Token) -> float:
    """Rejection of tokens without a weight: verl's token-level rejection sampling; no paper."""
    return float(within(ratio(token)))


def by_sequence_tis(row: list[Token], token: Token) -> float:
    """Ionides's truncation of the ratio of the sequence: TRL's `sequence_truncate`; no paper."""
    return min(CONFIG.tis_cap, product(row))


def by_sequence_mask(row: list[Token], token: Token) -> float:
    """IcePop's mask on the ratio of the sequence: TRL's `sequence_mask`; no paper."""
    return product(row) * within(product(row))


def by_geometric_mask(row: list[Token], token: Token) -> float:
    """Truncated ratios of tokens where the geometric mean is within bounds: verl's `geo_rs_token_tis`; no paper."""
    return min(CONFIG.tis_cap, ratio(token)) * within(geometric(row), 0.8, 1.3)


FORMULAS: dict[str, Formula] = {
    "none": lambda row, token: 1.0,
    "tis": by_tis,
    "icepop": by_icepop,
    "token_mask": by_token_mask,
    "sequence_tis": by_sequence_tis,
    "sequence_mask": by_sequence_mask,
    "geometric_mask": by_geometric_mask,
}


@pytest.mark.parametrize("name", get_args(Correction))
@given(st.integers(0, 10_000), st.floats(0.01, 1.0))
def test_each_correction_is_its_formula_and_carries_no_gradient(name: Correction, seed: int, spread: float) -> None:
    rows, here = random_rows(seed, spread), None
    here = seen(rows)
    weight = correction(here.terms, CONFIG.model_copy(update={"correction": name}))
    expected = [FORMULAS[name](row, token) for row in rows for token in row]
    assert weight.tolist() == pytest.approx(expected, rel=1e-10, abs=1e-12)
    assert not weight.requires_grad


@pytest.mark.parametrize("name", get_args(Correction))
@pytest.mark.parametrize("far", [-50.0, 50.0])
def test_long_sequences_far_from_their_sampler_stay_finite_and_under_the_cap(name: Correction, far: float) -> None:
    """Their product of ratios is exp(50,000)."""
    row = [Token(-1.0, -1.0 + far, -1.0, 1.0) for _ in range(1000)]
    weight = correction(seen([row], torch.float32).terms, CONFIG.model_copy(update={"correction": name}))
    assert weight.isfinite().all()
    assert weight.max() <= CONFIG.tis_cap + 1e-6


@pytest.mark.parametrize("name", get_args(Correction))
def test_old_logprobs_of_the_sampler_need_no_correction(name: Correction) -> None:
    config = CONFIG.model_copy(update={"correction": name, "old_logprobs": "sampler"})
    assert correction(seen(random_rows(1)).terms, config).unique().tolist() == [1.0]


def test_weight_dropped_and_capped_shares_and_the_effective_sample_size_are_metered() -> None:
    """The effective sample size of Kong 1992, (sum w)^2 / (n sum w^2) as a share of n."""
    ratios = [0.5, 1.0, 1.5, 4.0]
    row = [Token(0.0, math.log(value), 0.0, 1.0) for value in ratios]
    measured = {}
    for name in ("tis", "icepop"):
        here = seen([row])
        correction(here.terms, AlgorithmConfig.model_validate({**BOUNDS, "correction": name}))
        measured[name] = means([here.terms.meters.sums()])
    # weights 0.5, 1, 1.5, 1.6 and 0, 1, 1.5, 0
    assert measured["tis"] == pytest.approx(
        {
            "importance_mean": 4.6 / 4,
            "importance_ess": 4.6**2 / (4 * (0.25 + 1 + 2.25 + 2.56)),
            "importance_capped": 0.25,
            "importance_dropped": 0.0,
        }
    )
    assert measured["icepop"] == pytest.approx(
        {
            "importance_mean": 2.5 / 4,
            "importance_ess": 2.5**2 / (4 * 3.25),
            "importance_capped": 0.0,
            "importance_dropped": 0.5,
        }
    )


def test_a_masked_token_does_not_decide_about_its_sequence() -> None:
    row = [Token(0.0, 0.0, 0.0, 1.0), Token(0.0, 9.0, 0.0, 1.0, weight=0.0)]
    for name in ("sequence_mask", "geometric_mask"):
        weight = correction(seen([row]).terms, CONFIG.model_copy(update={"correction": name}))
        assert weight[0] == torch.tensor(1.0)
