"""Each loss and its gradient against a float64 reference written from the paper, one token at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from agentrl.algorithms import PPO, AlgorithmConfig
from agentrl.algorithms.config import CLIP_WIDTHS, Loss
from agentrl.losses import LOSSES
from agentrl.losses.policy_loss import gspo, ppo_clip
from agentrl.losses.terms import Terms, means
from tests.unit.algorithms.cases import algorithm
from tests.unit.losses.tokens import Rows, Token, mean, random_rows, seen

Formula = Callable[[list[Token], Token, AlgorithmConfig], tuple[float, float]]
"""(sequence, token, keys) -> the loss of the token and its derivative by the token's own logprob."""


def clipped(ratio: float, advantage: float, config: AlgorithmConfig) -> tuple[float, float]:
    """PPO (Schulman et al. 2017, arXiv:1707.06347, equation 7, page 3); d ratio / d logprob = ratio."""
    held = min(max(ratio, 1 - config.clip_low), 1 + config.clip_high)
    return (-held * advantage, 0.0) if held * advantage < ratio * advantage else (-ratio * advantage,) * 2


def by_ppo(row: list[Token], token: Token, config: AlgorithmConfig) -> tuple[float, float]:
    return clipped(math.exp(token.own - token.old), token.advantage, config)


def by_dual_clip(row: list[Token], token: Token, config: AlgorithmConfig) -> tuple[float, float]:
    """Ye et al. 2019, arXiv:1912.09729, equation 5: max(min(r A, clip(r) A), c A) where A < 0 is maximised."""
    loss, slope = by_ppo(row, token, config)
    bound = -config.dual_clip * token.advantage
    return (bound, 0.0) if token.advantage < 0 and loss > bound else (loss, slope)


def by_gspo(row: list[Token], token: Token, config: AlgorithmConfig) -> tuple[float, float]:
    """GSPO (Zheng et al. 2025, arXiv:2507.18071): equation 7 in the token objective of equations 13 and 14."""
    ratio = math.exp(mean([one.own - one.old for one in row if one.weight]))
    if not token.weight:
        return 0.0, 0.0
    return clipped(ratio, token.advantage, config)


def by_cispo(row: list[Token], token: Token, config: AlgorithmConfig) -> tuple[float, float]:
    """CISPO (MiniMax 2025, arXiv:2506.13585, equations 4 and 5): sg(clip(r)) A log policy is maximised."""
    weight = min(max(math.exp(token.own - token.old), 1 - config.clip_low), 1 + config.clip_high)
    return -weight * token.advantage * token.own, -weight * token.advantage


def by_policy_gradient(row: list[Token], token: Token, config: AlgorithmConfig) -> tuple[float, float]:
    """REINFORCE (Williams 1992, Machine Learning 8, pages 229-256): A log policy is maximised."""
    return -token.advantage * token.own, -token.advantage


FORMULAS: dict[str, Formula] = {
    "ppo_clip": by_ppo,
    "dual_clip": by_dual_clip,
    "gspo": by_gspo,
    "cispo": by_cispo,
    "policy_gradient": by_policy_gradient,
}


def summed(rows: Rows, config: AlgorithmConfig) -> tuple[float, Tensor]:
    """The weighted loss of all tokens, and its gradient in their logprobs."""
    here = seen(rows)
    loss = (here.terms.weights * LOSSES[config.loss](here.terms, config)).sum()
    loss.backward()
    assert here.logprobs.grad is not None
    return loss.item(), here.logprobs.grad


@pytest.mark.parametrize("loss", get_args(Loss))
@given(st.integers(0, 10_000), st.floats(0.01, 2.0))
def test_each_loss_and_its_gradient_are_the_papers(loss: Loss, seed: int, spread: float) -> None:
    """Those that `FORMULAS` names."""
    rows, config = random_rows(seed, spread), AlgorithmConfig(loss=loss)
    expected = [(token.weight, *FORMULAS[loss](row, token, config)) for row in rows for token in row]
    value, slopes = summed(rows, config)
    assert value == pytest.approx(sum(weight * one for weight, one, _ in expected), rel=1e-10, abs=1e-12)
    assert slopes.tolist() == pytest.approx([weight * slope for weight, _, slope in expected], rel=1e-10, abs=1e-12)


@given(st.integers(0, 10_000))
def test_where_a_sequence_shares_an_advantage_gspo_is_equation_5(seed: int) -> None:
    """Zheng et al. 2025, arXiv:2507.18071.

    The mean over each sequence's tokens, summed: value and gradient are those of the sequence objective.
    """
    rows = [[token for token in row if token.weight] or row[:1] for row in random_rows(seed, 1e-3, True)]
    rows = [[Token(t.own, t.old, t.sampler, t.advantage) for t in row] for row in rows]
    config = AlgorithmConfig(loss="gspo")
    token_form = seen(rows)
    token_form.terms.by_sequence(gspo(token_form.terms, config)).div(
        torch.tensor([float(len(row)) for row in rows for _ in row], dtype=torch.float64)
    ).sum().backward()
    own = seen(rows)
    total, start = torch.zeros((), dtype=torch.float64), 0
    for row in rows:
        logratio = own.logprobs[start : start + len(row)] - own.terms.old[start : start + len(row)]
        s, advantage = logratio.mean().exp(), row[0].advantage
        total = total - torch.minimum(s * advantage, s.clamp(1 - config.clip_low, 1 + config.clip_high) * advantage)
        start += len(row)
    total.backward()
    torch.testing.assert_close(token_form.logprobs.grad, own.logprobs.grad, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("loss", get_args(Loss))
@given(seed=st.integers(0, 10_000))
def test_at_the_old_policy_every_loss_has_the_gradient_of_reinforce(loss: Loss, seed: int) -> None:
    rows = [[Token(t.own, t.own, t.sampler, t.advantage) for t in row] for row in random_rows(seed)]
    _, slopes = summed(rows, AlgorithmConfig(loss=loss))
    assert slopes.tolist() == pytest.approx([-token.advantage for row in rows for token in row], rel=1e-12)


@pytest.mark.parametrize("loss", get_args(Loss))
@pytest.mark.parametrize("far", [-500.0, 500.0])
def test_a_ratio_that_would_overflow_stays_finite(loss: Loss, far: float) -> None:
    rows = [[Token(-1.0, -1.0 + far, -1.0, advantage) for advantage in (-1.0, 0.0, 1.0)]]
    here = seen(rows, torch.float32)
    value = LOSSES[loss](here.terms, AlgorithmConfig(loss=loss)).sum()
    value.backward()
    assert here.logprobs.grad is not None
    assert value.isfinite()
    assert here.logprobs.grad.isfinite().all()


def log(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).log()


def terms(logprobs: torch.Tensor, **columns: torch.Tensor) -> Terms:
    """Tokens of one sequence; what is left out is that of an on-policy token with advantage 1."""
    one, old = torch.ones_like(logprobs).detach(), logprobs.detach()
    given = {"sampler": old, "old": old, "advantages": one, "weights": one} | columns
    return Terms(logprobs=logprobs, entropy=one, sequence=torch.zeros(len(one), dtype=torch.long), **given)


def test_clip_higher_holds_a_good_token_at_its_own_bound_and_a_bad_one_at_the_lower() -> None:
    ratio = log(1.5, 1.25, 0.5, 1.5, 0.9)
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0, 2.0], dtype=torch.float64)
    here = terms(ratio, old=torch.zeros(5, dtype=torch.float64), advantages=advantages)
    loss = ppo_clip(here, AlgorithmConfig(clip_low=0.2, clip_high=0.28))
    torch.testing.assert_close(loss, torch.tensor([-1.28, -1.25, 0.8, 1.5, -1.8], dtype=torch.float64))
    assert means([here.meters.sums()]) == {"clip_fraction": 0.4}


@pytest.mark.parametrize("loss", CLIP_WIDTHS)
def test_a_loss_that_replaces_the_algorithms_own_brings_its_clip_widths(loss: str) -> None:
    keys = AlgorithmConfig(loss=loss)
    assert (keys.clip_low, keys.clip_high) == CLIP_WIDTHS[loss]
    assert AlgorithmConfig(loss=loss, clip_high=0.5).clip_high == 0.5
    assert AlgorithmConfig(loss=loss, clip_high=0.5).clip_low == CLIP_WIDTHS[loss][0]


def test_an_algorithm_keeps_the_clip_widths_of_its_own_loss() -> None:
    class Narrow(AlgorithmConfig):
        loss: Loss = "gspo"
        clip_low: float = 0.1

    assert Narrow().clip_low == Narrow(loss="gspo").clip_low == 0.1
    assert Narrow(loss="cispo").clip_low == 1.0


def test_dual_clip_keeps_the_clip_widths_of_an_algorithm_with_ppo_clip() -> None:
    """Its only difference is one more bound."""

    class Dual(PPO.Config):
        loss: Loss = "dual_clip"

    assert PPO.Config(loss="dual_clip").clip_high == Dual().clip_high == PPO.Config().clip_high == 0.2
    assert Dual(loss="cispo").clip_high == CLIP_WIDTHS["cispo"][1]


DEFAULTS: dict[str, dict[str, Any]] = {
    "grpo": {"loss": "ppo_clip", "normalization": "token", "clip_low": 0.2, "clip_high": 0.28},
    "dr_grpo": {"loss": "ppo_clip", "normalization": "constant"},
    "dapo": {
        "loss": "ppo_clip", "normalization": "token", "clip_low": 0.2, "clip_high": 0.28,
        "overlong_penalty": 1.0, "filter_zero_variance": True,
    },
    "gspo": {"loss": "gspo", "normalization": "sequence", "clip_low": 3e-4, "clip_high": 4e-4},
    "cispo": {"loss": "cispo", "normalization": "token", "clip_low": 1.0, "clip_high": 4.0},
    "ppo": {"loss": "ppo_clip", "normalization": "token", "clip_low": 0.2, "clip_high": 0.2},
}  # fmt: skip
"""Dr. GRPO: arXiv:2503.20783, section 3.2. DAPO: arXiv:2503.14476, equation 8 and section 4.1. GSPO: arXiv:2507.18071,
equation 5 and section 5.1. CISPO: arXiv:2506.13585, section 3.1. PPO: arXiv:1707.06347, section 6.1."""


@pytest.mark.parametrize("name", DEFAULTS)
def test_an_algorithm_has_the_loss_the_normalisation_and_the_widths_of_its_paper(name: str) -> None:
    config = algorithm(name).config
    assert {key: getattr(config, key) for key in DEFAULTS[name]} == DEFAULTS[name]
