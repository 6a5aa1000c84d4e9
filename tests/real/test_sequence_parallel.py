"""Ranks that share micro-batches learn what one rank does: real DeepSpeed ranks over gloo, tiny models in float32."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from agentrl.config.schema import AlgorithmSection, CriticSection, LoraSection
from agentrl.learner.spec import LearnerSpec
from tests.real.test_learner import run, spec
from tests.tiny import tiny_model, tiny_windowed

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]
LR = 1e-5
"""Adam divides by the size of a gradient, and small ones are mostly rounding: a step differs by a share of the rate."""
CLOSE = 1e-6


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def shared(one: LearnerSpec, ranks: int, **learner: Any) -> LearnerSpec:
    """The same learner, whose ranks share micro-batches in groups of `ranks`."""
    return replace(one, learner=one.learner.model_copy(update={"sequence_parallel": ranks, **learner}))


def assert_same_steps(found: list[Any], expected: list[Any], names: list[str]) -> None:
    """Loss, gradient norm, meters, tokens and weights of three steps, for each learner of a rank."""
    for name, (reports, weights, logprobs), (straight, plain_weights, plain_logprobs) in zip(
        names, found, expected, strict=True
    ):
        for got, wanted in zip(reports, straight, strict=True):
            assert got.loss == pytest.approx(wanted.loss, abs=CLOSE), name
            assert got.grad_norm == pytest.approx(wanted.grad_norm, abs=CLOSE, rel=CLOSE), name
            assert got.meters == pytest.approx(wanted.meters, abs=1e-5, rel=1e-5), name
            assert got.learned_tokens == wanted.learned_tokens, name
        assert max(report.grad_norm for report in straight) > 0.01, name
        for key, tensor in weights.items():
            torch.testing.assert_close(tensor, plain_weights[key], atol=CLOSE, rtol=0, msg=lambda m: f"{name} {m}")  # noqa: B023
        for row, plain_row in zip(logprobs, plain_logprobs, strict=True):
            assert row == pytest.approx(plain_row, abs=CLOSE), name


def assert_same_critic(plain: LearnerSpec, two_ranks: LearnerSpec, tmp_path_factory: Any) -> None:
    """Values, meters and weights of a critic on one rank and on two, and that it is kept and resumed exactly."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    [[(start, straight, _, expected, _)]] = run("critic", one, plain)
    for [(values, reports, is_kept, weights, is_resumed)] in run("critic", two, two_ranks, ranks=2):
        assert (is_kept, is_resumed) == (True, True)
        assert {n: row.tolist() for n, row in values.items()} == {
            n: pytest.approx(row.tolist(), abs=CLOSE) for n, row in start.items()
        }
        for got, wanted in zip(reports, straight, strict=True):
            assert got.meters == pytest.approx(wanted.meters, abs=1e-5, rel=1e-5)
        for key, tensor in weights.items():
            torch.testing.assert_close(tensor, expected[key], atol=CLOSE, rtol=0)


def ppo(model: Path) -> LearnerSpec:
    """PPO with a critic at another ZeRO stage, which learns alone at first."""
    plain = spec(model, AlgorithmSection(name="ppo"), lr=LR)
    return replace(plain, critic=CriticSection(lr=LR, zero_stage=2, warmup_steps=1))


def test_two_ranks_that_share_micro_batches_take_the_steps_of_one(model: Path, tmp_path_factory: Any):
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    single, windowed = tmp_path_factory.mktemp("single"), tmp_path_factory.mktemp("windowed")
    tiny_model(single, kv_heads=1)
    tiny_windowed(windowed, 6)
    plain = spec(model, lr=LR)
    wide, loose = {"clip_low": 0.2, "clip_high": 0.2}, {"geometric_low": 0.7, "geometric_high": 1.4}
    kinds = {
        "token loss": plain,
        "one head of keys": spec(single, lr=LR),
        "sliding window": spec(windowed, lr=LR),
        "sequence loss": spec(model, AlgorithmSection(loss="gspo", **wide), lr=LR, updates_per_batch=2),
        "sequence mask": spec(model, AlgorithmSection(correction="geometric_mask", **loose), lr=LR),
        "reference and entropy": spec(model, AlgorithmSection(kl_coef=0.1, entropy_coef=0.1), lr=LR),
        "checkpointing": replace(plain, gradient_checkpointing=True),
        "adapters": replace(plain, lora=LoraSection(rank=4, alpha=8, publish="merged")),
    }
    [alone] = run("train", one, *kinds.values())
    for found in run("train", two, *(shared(each, 2) for each in kinds.values()), ranks=2):
        assert_same_steps(found, alone, list(kinds))


def test_groups_of_ranks_take_the_steps_of_one_rank_at_every_zero_stage(model: Path, tmp_path_factory: Any):
    one, four = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("four")
    plain = spec(model, AlgorithmSection(kl_coef=0.1), lr=LR)
    names = [*(f"2 x 2 at stage {stage}" for stage in range(4)), "1 x 4, 2 heads of keys"]
    layouts = [*(shared(plain, 2, zero_stage=stage) for stage in range(4)), shared(plain, 4, zero_stage=2)]
    [[alone]] = run("train", one, plain)
    for found in run("train", four, *layouts, ranks=4):
        assert_same_steps(found, [alone] * len(layouts), names)


def test_a_critic_on_ranks_that_share_micro_batches_learns_what_it_does_on_one(model: Path, tmp_path_factory: Any):
    plain = ppo(model)
    assert_same_critic(plain, shared(plain, 2), tmp_path_factory)


def test_a_rank_refuses_a_model_whose_heads_it_cannot_share(model: Path, tmp_path: Path):
    [said] = run("refused", tmp_path, shared(spec(model), 3))
    assert said.startswith("ConfigError: learner.sequence_parallel 3: ")
    assert said.endswith(
        "4 attention heads and 2 key/value heads, which 3 ranks cannot divide equally. Possible are 1, 2, 4"
    )
