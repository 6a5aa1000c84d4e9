"""Every algorithm learns small games in a second, and the same algorithm with a fault in it does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from agentrl.algorithms import (
    Algorithm,
    Sample,
    algorithms,
    gigpo,
    grpo,
    ppo,
    reinforce_pp,
    reinforce_pp_baseline,
    remax,
    rloo,
)
from agentrl.algorithms.config import Correction, Loss
from agentrl.algorithms.credit import gae
from agentrl.algorithms.distillation import Distillation
from agentrl.algorithms.grpo import GRPO
from agentrl.algorithms.ppo import PPO
from agentrl.algorithms.rloo import RLOO
from agentrl.algorithms.sample import TrainSequence
from agentrl.losses import LOSSES
from agentrl.losses.terms import Terms
from tests.unit.learning.games import BANDIT, CHAIN, CONTEXTUAL, EVEN, GAMES, OFFSET, Game
from tests.unit.learning.practice import Practice

SEEDS = range(3)
MARGIN = 0.4
"""Expected reward that a policy must gain. The best policy gains 0.75 in the bandits and 0.625 in the chain, where a
policy that learns nothing but the second turn gains 0.25."""

every_algorithm = pytest.mark.parametrize("algorithm", algorithms().values(), ids=algorithms().keys())


def gain(game: Game, algorithm: Algorithm, seed: int = 0, staleness: int = 0) -> float:
    practice = Practice(game, algorithm, seed, staleness=staleness)
    start = practice.expected_reward
    return practice.train(game.batches) - start


@pytest.mark.parametrize("game", GAMES.values(), ids=GAMES.keys())
@every_algorithm
def test_an_algorithm_learns(algorithm: type[Algorithm], game: Game) -> None:
    for seed in SEEDS:
        assert gain(game, algorithm(), seed) >= MARGIN, f"seed {seed}"


@every_algorithm
def test_the_same_seed_gives_the_same_weights(algorithm: type[Algorithm]) -> None:
    practices = [Practice(CONTEXTUAL, algorithm(), seed=0) for _ in range(2)]
    other = Practice(CONTEXTUAL, algorithm(), seed=1)
    for practice in (*practices, other):
        practice.train(3)
    one, two, three = (practice.policy.model.state_dict() for practice in (*practices, other))
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())
    assert not all(torch.equal(tensor, three[name]) for name, tensor in one.items())


# --- the tests bite -----------------------------------------------------------------------------------------


def broken(algorithm: type[Algorithm], spoil: Callable[[Sample], None]) -> Algorithm:
    """Return the algorithm with a fault: `spoil` changes each sample after credit was given."""

    def credit(self: Algorithm, groups: Sequence[Sequence[Sample]]) -> None:
        algorithm.credit(self, groups)
        for sample in (sample for samples in groups for sample in samples):
            spoil(sample)

    return type("Broken", (algorithm,), {"credit": credit})()


def negate(sample: Sample) -> None:
    sample.advantages = -sample.advantages


def delay(sample: Sample) -> None:
    sample.advantages = np.concatenate([[0.0], sample.advantages[:-1]])


@every_algorithm
def test_no_algorithm_learns_with_its_sign_flipped(algorithm: type[Algorithm]) -> None:
    assert gain(BANDIT, broken(algorithm, negate)) < 0


@every_algorithm
def test_no_algorithm_learns_with_its_credit_one_action_late(algorithm: type[Algorithm]) -> None:
    assert gain(CHAIN, broken(algorithm, delay)) < MARGIN


@every_algorithm
def test_no_algorithm_learns_with_its_advantages_shifted_by_one(algorithm: type[Algorithm]) -> None:
    """Each action of a micro-batch gets the advantage of the one before it."""

    def objective(self: Algorithm, terms: Terms) -> Tensor:
        return algorithm.objective(self, replace(terms, advantages=terms.advantages.roll(1)))

    assert gain(BANDIT, type("Broken", (algorithm,), {"objective": objective})()) < MARGIN


class Shifted(Practice):
    """Trains the token before each action instead of the action."""

    def batch(self) -> list[TrainSequence]:
        return [replace(sequence, mask=np.roll(sequence.mask, -1)) for sequence in super().batch()]


@every_algorithm
def test_with_its_mask_shifted_by_one_the_chain_is_not_learned(algorithm: type[Algorithm]) -> None:
    practice = Shifted(CHAIN, algorithm(), seed=0)
    start = practice.expected_reward
    assert practice.train(CHAIN.batches) - start < MARGIN


def scaled(samples: Sequence[Sample]) -> None:
    """Divide advantages by their deviation over the batch, as whitening does, without subtracting their mean."""
    deviation = np.concatenate([sample.advantages for sample in samples]).std() + 1e-8
    for sample in samples:
        sample.advantages = sample.advantages / deviation


@pytest.fixture
def no_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace every baseline of an algorithm by 0: means of groups and batches, greedy episodes and values."""
    for module in (grpo, gigpo, reinforce_pp_baseline):
        monkeypatch.setattr(module, "centred", lambda values: values)
    monkeypatch.setattr(rloo, "minus_mean_of_others", lambda values: values)
    monkeypatch.setattr(remax, "_baseline", lambda sample: np.zeros(len(sample)))
    monkeypatch.setattr(ppo, "gae", lambda rewards, values, *rates: gae(rewards, np.zeros_like(values), *rates))
    for module in (ppo, reinforce_pp, reinforce_pp_baseline):
        monkeypatch.setattr(module, "whiten", scaled)


@pytest.mark.parametrize("algorithm", [cls for cls in algorithms().values() if cls is not Distillation])
@pytest.mark.usefixtures("no_baselines")
def test_no_algorithm_learns_a_bandit_that_always_pays_with_its_baseline_dropped(algorithm: type[Algorithm]) -> None:
    """Distillation has no baseline: its advantages have the policy's own logprobs in them."""
    assert np.mean([gain(BANDIT, algorithm(), seed) for seed in SEEDS]) < MARGIN


@pytest.mark.usefixtures("no_baselines")
def test_without_a_baseline_a_game_that_mostly_pays_nothing_is_learned() -> None:
    """The reward itself is the credit."""
    assert gain(CONTEXTUAL, GRPO()) >= MARGIN


class Myopic(GRPO):
    """Credits a turn with nothing but its own reward."""

    def credit(self, groups: Sequence[Sequence[Sample]]) -> None:
        for samples in groups:
            rewards = np.array([sample.rewards() for sample in samples])
            for sample, advantages in zip(samples, rewards - rewards.mean(0), strict=True):
                sample.advantages = advantages


def test_without_credit_across_turns_the_chain_is_not_learned() -> None:
    assert gain(CHAIN, Myopic()) < 0
    assert gain(BANDIT, Myopic()) >= MARGIN


# --- the critic ---------------------------------------------------------------------------------------------


def test_the_critic_learns_the_value_of_every_state_of_the_chain() -> None:
    """The policy does not learn: half of its first tokens are even, and then half of its second tokens pay 1."""
    practice = Practice(CHAIN, PPO(), seed=0)
    values: dict[str, list[float]] = {"start": [], "even": [], "odd": []}
    for number in range(30):
        batch = practice.batch()
        for sequence in batch if number >= 20 else []:
            first, columns = sequence.ids[sequence.mask][0], sequence.columns
            assert columns.values is not None
            values["start"].append(columns.values[0])
            values["even" if first in EVEN else "odd"].append(columns.values[1])
        practice.learn_values(batch)
    means = {state: float(np.mean(of_state)) for state, of_state in values.items()}
    assert means == pytest.approx({"start": practice.expected_reward, "even": 0.5, "odd": 0.0}, abs=0.1)


class WithoutCritic(PPO):
    """Ignores what the critic says."""

    def credit(self, groups: Sequence[Sequence[Sample]]) -> None:
        for sample in (sample for samples in groups for sample in samples):
            sample.columns["values"] = np.zeros(len(sample))
        super().credit(groups)


def test_with_a_lambda_of_0_credit_crosses_turns_through_the_critic_alone() -> None:
    """A = r + V(next state) - V(state): the first turn learns what the second may earn from its value."""
    game, config = replace(CHAIN, batches=25), PPO.Config(gae_lambda=0.0)
    assert gain(game, PPO(config)) >= MARGIN
    assert gain(game, WithoutCritic(config)) < 0


# --- losses, corrections, KL and entropy --------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_learns(loss: Loss) -> None:
    for seed in SEEDS:
        assert gain(BANDIT, RLOO(RLOO.Config(loss=loss)), seed) >= MARGIN, f"seed {seed}"


@pytest.mark.parametrize("correction", get_args(Correction))
def test_a_correction_learns(correction: Correction) -> None:
    """The sampler is two batches behind; only the geometric mask, which keeps 1 %, needs one that is up to date."""
    staleness = 0 if correction == "geometric_mask" else 2
    assert gain(BANDIT, RLOO(RLOO.Config(correction=correction)), staleness=staleness) >= MARGIN


REGULARISED: dict[str, tuple[float, dict[str, Any]]] = {
    "KL in the loss": (1.0, {"kl_coef": 0.5}),
    "KL in the reward": (1.0, {"kl_coef": 0.5, "kl_in": "reward"}),
    "KL in the reward, wrong estimator": (1.0, {"kl_coef": 0.5, "kl_in": "reward", "kl_estimator": "k3"}),
    "entropy bonus": (1.0, {"entropy_coef": 0.5}),
    "KL, another sampler": (2.0, {"kl_coef": 0.5, "correction": "tis", "tis_cap": 100.0}),
    "KL, another sampler, wrong without correction": (2.0, {"kl_coef": 0.5, "correction": "none"}),
}


@pytest.mark.parametrize("case", REGULARISED)
def test_a_regularised_bandit_ends_at_its_closed_form(case: str) -> None:
    """The optimum of E[r] - c KL(policy || start) is start * exp(r / c) / Z.

    The start is uniform, which makes it the optimum of E[r] + c H too. A policy ends elsewhere if k2 or k3 is in the
    reward, whose policy gradients are not that of the KL, or if a sampler sharper than itself is not corrected for.
    """
    sharpness, keys = REGULARISED[case]
    practice = Practice(BANDIT, RLOO(RLOO.Config(**keys)), seed=0, sharpness=sharpness)
    start = practice.expected_reward - OFFSET
    optimum = start * math.exp(1 / 0.5) / (start * math.exp(1 / 0.5) + 1 - start)
    practice.train(15)
    reached = np.mean([practice.train(1) - OFFSET for _ in range(12)])
    assert (abs(reached - optimum) < 0.1) == ("wrong" not in case), f"{reached:.2f}, optimum {optimum:.2f}"
