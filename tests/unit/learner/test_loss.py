"""The learner applies the weights of the tokens, whatever an algorithm minimises."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from agentrl.algorithms import GRPO, algorithms, resolve
from agentrl.errors import AlgorithmError
from agentrl.learner.batch import build_trees
from agentrl.learner.loss import MicroBatchLoss, rehearse_loss
from agentrl.learner.micro_batch import dummy_micro_batch, pack
from agentrl.losses.terms import Meter, Terms
from tests.unit.learner.synthetic import batch


class Own(GRPO):
    def objective(self, terms: Terms) -> Tensor:
        return -terms.advantages * terms.logprobs


class Mean(GRPO):
    def objective(self, terms: Terms) -> Tensor:
        return (-terms.advantages * terms.logprobs).mean()


class Broken(GRPO):
    def loss(self, terms: Terms) -> Tensor:
        raise KeyError("a signal that these episodes lack")


def gradient(algorithm: GRPO) -> tuple[Tensor, Tensor]:
    """The gradient in the logprobs of a row whose tokens have the weights 0, 1, 2, … and the advantage 1."""
    row = max(batch(1, 2), key=lambda one: one.actions)
    weights = np.arange(row.actions, dtype=np.float32)
    row = row.with_columns(weights=weights, advantages=np.ones_like(weights))
    packed = pack([row], build_trees([row], [0])).to(torch.device("cpu"), torch.float32)
    logprobs = torch.full((row.actions,), -5.0, requires_grad=True)
    MicroBatchLoss(algorithm, packed, 1.0, Meter())(logprobs, torch.ones(row.actions)).backward()
    assert logprobs.grad is not None
    return logprobs.grad, torch.from_numpy(weights)


def test_a_token_without_weight_has_no_gradient_in_an_objective_of_its_own() -> None:
    slopes, weights = gradient(Own())
    assert torch.equal(slopes, -weights)


class PerSequence(GRPO):
    """Divides by the length of the sequence, as a loss of one's own may."""

    def loss(self, terms: Terms) -> Tensor:
        return -terms.advantages * terms.logprobs / terms.by_sequence(torch.ones_like(terms.logprobs), "sum")


def test_a_dummy_micro_batch_has_neither_loss_nor_gradient_whatever_the_loss_divides_by() -> None:
    rows = batch(1, 2)
    packed = dummy_micro_batch(rows, build_trees(rows, [0, 1])).to(torch.device("cpu"), torch.float32)
    logprobs = torch.full(packed.targets_A.shape, -5.0, requires_grad=True)
    meter = Meter()
    loss = MicroBatchLoss(PerSequence(), packed, 1.0, meter)(logprobs, torch.ones_like(logprobs))
    loss.backward()
    assert logprobs.grad is not None
    assert (loss.item(), logprobs.grad.abs().max().item(), meter.sums()) == (0.0, 0.0, {})


class Misnamed(GRPO):
    def loss(self, terms: Terms) -> Tensor:
        return -terms.advantage * terms.logprobs  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(algorithms()))
def test_the_losses_of_agentrl_pass_the_rehearsal(name: str) -> None:
    rehearse_loss(resolve(name)())


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (
            Misnamed,
            r"^Misnamed: its loss failed with tokens made by hand: AttributeError: .*advantage.*test_loss\.py:\d+",
        ),
        (Mean, r"^Mean\.objective returned the shape \(\), not "),
    ],
)
def test_a_mistake_in_a_loss_is_found_when_a_rank_starts(algorithm: type[GRPO], message: str) -> None:
    with pytest.raises(AlgorithmError, match=message):
        rehearse_loss(algorithm())


class Unmetered(GRPO):
    class Config(GRPO.Config):
        kl_stop: float = 0.1

    def objective(self, terms: Terms) -> Tensor:
        return -terms.advantages * terms.logprobs


class Clashing(GRPO):
    has_open_loss = False

    def loss(self, terms: Terms) -> Tensor:
        terms.meter("entropy", terms.entropy)
        return -terms.advantages * terms.logprobs


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (Unmetered, r"^algorithm\.kl_stop needs the meter 'policy_kl'"),
        (Clashing, r"^Clashing\.loss meters 'entropy', as agentrl does: choose another name"),
    ],
)
def test_what_is_metered_wrongly_is_found_when_a_rank_starts(algorithm: type[GRPO], message: str) -> None:
    with pytest.raises(AlgorithmError, match=message):
        rehearse_loss(algorithm())


def test_an_objective_that_is_a_mean_is_refused_by_name() -> None:
    with pytest.raises(AlgorithmError, match=r"^Mean\.objective returned the shape \(\), not "):
        gradient(Mean())


def test_a_loss_that_raises_is_named_with_its_line() -> None:
    with pytest.raises(
        AlgorithmError, match=r"^Broken: its loss failed: .*a signal that these.*test_loss\.py:\d+"
    ) as failed:
        gradient(Broken())
    assert isinstance(failed.value.__cause__, KeyError)
