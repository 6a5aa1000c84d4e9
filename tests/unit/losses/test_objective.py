"""The objective of a token: correction, policy loss, KL term, entropy bonus, weight."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentrl.algorithms import AlgorithmConfig
from agentrl.algorithms.config import Correction, Loss
from agentrl.errors import AlgorithmError
from agentrl.losses import LOSSES
from agentrl.losses.objective import objective
from agentrl.losses.terms import Terms, means
from tests.unit.losses.tokens import Seen, Token, mean, random_rows, seen


def summed(here: Seen, **keys: Any) -> torch.Tensor:
    config = AlgorithmConfig.model_validate(keys)
    loss = objective(here.terms, config, lambda terms: LOSSES[config.loss](terms, config))
    total = (here.terms.weights * loss).sum()
    total.backward()
    return total.detach()


@given(st.integers(0, 10_000), st.sampled_from(["k1", "k2", "k3"]))
def test_the_objective_is_the_sum_of_its_terms(seed: int, estimator: str) -> None:
    """A float64 reference, one token at a time; the reference is within the bound of the log-ratio."""
    rows, here = random_rows(seed), seen(random_rows(seed))
    keys = {"correction": "tis", "loss": "policy_gradient", "kl_coef": 0.3, "entropy_coef": 0.2}
    value = summed(here, kl_estimator=estimator, **keys)
    expected, slopes, bonuses = 0.0, [], []
    for token in (token for row in rows for token in row):
        correction = min(2.0, math.exp(token.old - token.sampler))
        d = token.reference - token.own
        kl = {"k1": -d, "k2": d * d / 2, "k3": math.exp(d) - 1 - d}[estimator]
        weight = min(2.0, math.exp(token.own - token.sampler))
        terms = correction * -token.advantage * token.own + 0.3 * weight * kl - 0.2 * token.entropy
        expected += token.weight * terms
        slopes.append(token.weight * (correction * -token.advantage + 0.3 * weight * -d))
        bonuses.append(token.weight * -0.2)
    assert value.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert here.logprobs.grad is not None
    assert here.logprobs.grad.tolist() == pytest.approx(slopes, rel=1e-9, abs=1e-12)
    assert here.entropy.grad is not None
    assert here.entropy.grad.tolist() == pytest.approx(bonuses, rel=1e-12)


def test_coefficients_that_adapt_are_those_of_the_state() -> None:
    rows = random_rows(3)
    fixed = summed(seen(rows), kl_coef=0.5, entropy_coef=0.25)
    state = {"kl_coef": 0.5, "entropy_coef": 0.25}
    here = seen(rows, state=state)
    assert summed(here, kl_coef=0.1, kl_target=1.0, entropy_target=1.0) == fixed
    metered = means([here.terms.meters.sums()])
    assert {name: metered[name] for name in state} == pytest.approx(state)


def test_a_token_above_the_bound_gets_no_bonus() -> None:
    rows = [[Token(-1.0, -1.0, -1.0, 0.0, entropy=entropy) for entropy in (0.5, 1.0, 1.5)]]
    here = seen(rows)
    summed(here, entropy_coef=0.1, entropy_clip=1.0)
    assert here.entropy.grad is not None
    assert here.entropy.grad.tolist() == pytest.approx([-0.1, -0.1, 0.0])


@given(st.integers(0, 10_000))
def test_a_kl_in_the_reward_is_metered_and_left_out_of_the_loss(seed: int) -> None:
    rows = random_rows(seed)
    plain, here = seen(rows), seen(rows)
    assert summed(plain) == summed(here, kl_coef=0.5, kl_in="reward", kl_estimator="k1")
    assert torch.equal(plain.logprobs.grad, here.logprobs.grad)  # type: ignore[arg-type]
    trained = [token for row in rows for token in row if token.weight]
    expected = mean([token.own - token.reference for token in trained])
    assert means([here.terms.meters.sums()])["reference_kl"] == pytest.approx(expected)


def test_a_token_that_is_not_trained_is_not_metered() -> None:
    here = seen([[Token(-1.0, -1.0, -1.0, 0.0, entropy=1.0), Token(-1.0, -9.0, -9.0, 0.0, entropy=3.0, weight=0.0)]])
    summed(here, correction="tis")
    metered = means([here.terms.meters.sums()])
    assert (metered["entropy"], metered["policy_kl"], metered["importance_mean"]) == (1.0, 0.0, 1.0)


def test_the_drift_from_the_old_policy_is_metered() -> None:
    here = seen([[Token(-1.0, -1.5, -1.0, 1.0)]])
    summed(here)
    assert means([here.terms.meters.sums()])["policy_kl"] == pytest.approx(math.exp(0.5) - 1.5)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda terms: (-terms.advantages * terms.ratio).mean(),
            r"returned the shape \(\), not \(2,\): .*without a mean",
        ),
        (lambda terms: (-terms.advantages * terms.ratio)[:, None], r"returned the shape \(2, 1\), not \(2,\)"),
        (lambda terms: 0.0, r"returned a float, not \(2,\)"),
        (lambda terms: -terms.advantages * terms.logprobs.detach(), r"returned a loss without a gradient"),
    ],
)
def test_a_loss_that_does_not_train_each_token_is_refused(wrong: Callable[[Terms], Any], message: str) -> None:
    here = seen([[Token(-1.0, -1.5, -0.5, 1.0), Token(-1.0, -1.5, -0.5, 1.0, weight=0.0)]])
    with pytest.raises(AlgorithmError, match=message):
        objective(here.terms, AlgorithmConfig(), wrong)


def test_a_masked_token_has_neither_loss_nor_gradient() -> None:
    here = seen([[Token(-1.0, -1.5, -0.5, 1.0, weight=0.0)]])
    assert summed(here, kl_coef=1.0, entropy_coef=1.0) == 0.0
    assert here.logprobs.grad == here.entropy.grad == torch.zeros(1, dtype=torch.float64)


CASES: list[dict[str, Any]] = [
    *({"loss": loss} for loss in get_args(Loss)),
    *({"correction": correction, "geometric_low": 0.8, "geometric_high": 1.2} for correction in get_args(Correction)),
]


@pytest.mark.parametrize("keys", CASES, ids=lambda keys: keys.get("loss") or keys["correction"])
@given(seed=st.integers(0, 10_000))
def test_padding_and_the_order_of_sequences_change_nothing(keys: dict[str, Any], seed: int) -> None:
    rows = random_rows(seed)
    plain, padding = seen(rows), Token(-9.0, -3.0, -1.0, 5.0, weight=0.0)
    padded = seen([[*row, *[padding] * (9 - len(row))] for row in reversed(rows)])
    assert summed(plain, **keys).item() == pytest.approx(summed(padded, **keys).item(), rel=1e-12, abs=1e-12)
    assert plain.logprobs.grad is not None
    assert padded.logprobs.grad is not None
    lengths = [len(row) for row in rows]
    kept = padded.logprobs.grad.view(len(rows), 9).flip(0)
    expected = torch.cat([row[:length] for row, length in zip(kept, lengths, strict=True)])
    torch.testing.assert_close(plain.logprobs.grad, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("correction", get_args(Correction))
@pytest.mark.parametrize("loss", get_args(Loss))
def test_the_host_asks_a_device_for_no_number(loss: str, correction: str) -> None:
    """It would wait for the device in every micro-batch. Tensors without data have no number to give."""
    terms = seen(random_rows(0)).terms
    columns = {"reference": terms.column("reference").to("meta")}
    given = {field.name: getattr(terms, field.name) for field in dataclasses.fields(terms)}
    moved = {name: value.to("meta") for name, value in given.items() if isinstance(value, torch.Tensor)}
    here = Terms(**given | moved | {"columns": columns})
    keys = {"loss": loss, "correction": correction, "kl_coef": 0.1, "entropy_coef": 0.1, "entropy_clip": 1.0}
    config = AlgorithmConfig.model_validate(keys)
    value = objective(here, config, lambda terms: LOSSES[config.loss](terms, config))
    assert (value.device.type, value.shape) == ("meta", terms.logprobs.shape)
    with pytest.raises(RuntimeError, match="meta"):
        int(here.sequence.max())
