"""The critic: values and gradients equal plain PyTorch, however the batch is split; where its weights come from."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from agentrl.algorithms.sample import TrainSequence
from agentrl.errors import ConfigError
from agentrl.learner.batch import build_trees, plan_micro_batches
from agentrl.learner.critic import MicroBatchValueLoss, value_meters
from agentrl.learner.micro_batch import dummy_micro_batch, pack
from agentrl.learner.value_model import ValueModel, load_value_model
from agentrl.losses.terms import Meter, means
from tests.tiny import tiny_gemma2, tiny_model
from tests.unit.learner.synthetic import batch, plain_value_loss, reward_model, with_values

CLIP = 0.2
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reward_model(tmp_path_factory.mktemp("critic"))


@pytest.fixture(scope="module")
def model(folder: Path) -> ValueModel:
    return load_value_model(folder, torch.float32)


def gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    named = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return named


def learned(
    model: ValueModel, sequences: list[TrainSequence], ranks: int = 1, budget: int = 4096
) -> tuple[float, dict[str, Tensor], dict[str, float]]:
    """Loss, gradients and meters of a batch; the micro-batches of all ranks run one after the other."""
    scale, loss, meter = 1 / sum(s.share for s in sequences), 0.0, Meter()
    trees = build_trees(sequences, range(len(sequences)))
    for content in (content for of_rank in plan_micro_batches(trees, ranks, budget) for content in of_rank):
        row = (pack(sequences, content) if content else dummy_micro_batch(sequences, trees)).to(CPU, torch.float32)
        value = model(row, MicroBatchValueLoss(row, CLIP, scale, meter))
        value.backward()
        loss += value.item()
    return loss, gradients(model.model), means([meter.sums()])


def plain(folder: Path, sequences: list[TrainSequence]) -> tuple[float, dict[str, Tensor], float]:
    """The same by transformers alone."""
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    loss, share = plain_value_loss(model, sequences, CLIP)
    loss.backward()
    return loss.item(), gradients(model), share


def assert_same(one: tuple[float, dict[str, Tensor]], other: tuple[float, dict[str, Tensor]]) -> None:
    assert one[0] == pytest.approx(other[0], abs=1e-5)
    assert one[1].keys() == other[1].keys()
    for name, gradient in one[1].items():
        torch.testing.assert_close(gradient, other[1][name], atol=1e-5, rtol=1e-4)


def test_loss_gradient_and_clip_fraction_equal_plain_padded_pytorch(folder: Path, model: ValueModel):
    sequences = with_values(batch())
    loss, gradient, meters = learned(model, sequences)
    wanted_loss, wanted_gradient, share = plain(folder, sequences)
    assert_same((loss, gradient), (wanted_loss, wanted_gradient))
    assert meters["value_clip_fraction"] == pytest.approx(share)
    assert meters["value_loss"] == pytest.approx(loss, abs=1e-5)  # all weights are 1


def test_tokens_without_a_weight_teach_the_critic_nothing(folder: Path, model: ValueModel):
    sequences = with_values(batch())
    halved = [s.with_columns(weights=s.columns.weights * 0.5) if s.sample.member else s for s in sequences]
    halved[0] = halved[0].with_columns(weights=halved[0].columns.weights * 0)
    assert_same(learned(model, halved)[:2], plain(folder, halved)[:2])


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1000), ranks=st.integers(1, 5), budget=st.integers(1, 120), shuffle=st.randoms())
def test_splitting_packing_and_order_change_neither_loss_nor_gradient(
    model: ValueModel, seed: int, ranks: int, budget: int, shuffle: random.Random
):
    sequences = with_values(batch(seed=seed), seed)
    whole = learned(model, sequences)
    shuffle.shuffle(sequences)
    parts = learned(model, sequences, ranks, budget)
    assert_same(parts[:2], whole[:2])
    assert parts[2] == pytest.approx(whole[2], abs=1e-5)


def test_sharing_a_prompt_changes_neither_loss_nor_gradient(model: ValueModel):
    sequences = with_values(batch())
    alone = [replace(s, sample=s.sample._replace(group=n)) for n, s in enumerate(sequences)]
    assert_same(learned(model, alone)[:2], learned(model, sequences)[:2])


def test_the_head_computes_in_float32_when_the_model_does_not(folder: Path):
    sequences = with_values(batch())
    row = pack(sequences, build_trees(sequences, range(len(sequences)))).to(CPU, torch.bfloat16)
    values = load_value_model(folder, torch.bfloat16)(row)
    assert values.dtype == torch.float32
    assert not torch.equal(values, values.bfloat16().float())


def test_a_reward_model_keeps_its_head_and_a_language_model_starts_with_values_of_zero(folder: Path, tmp_path: Path):
    sequences = batch()
    row = pack(sequences, build_trees(sequences, range(len(sequences)))).to(CPU, torch.float32)
    assert torch.equal(load_value_model(folder, torch.float32).head_weight[0], torch.linspace(-1, 1, 64))
    assert load_value_model(tiny_model(tmp_path), torch.float32)(row).tolist() == [0.0] * len(row.targets_A)


def test_a_classifier_with_several_labels_is_refused_by_name(tmp_path: Path):
    with pytest.raises(ConfigError, match=f"{tmp_path}.*3 labels"):
        load_value_model(reward_model(tmp_path, 3), torch.float32)


@pytest.mark.parametrize("cap", [None, 1.0])
def test_a_critic_that_packing_would_train_wrong_is_refused(cap: float | None, tmp_path: Path):
    tiny_gemma2(tmp_path, initializer_range=0.3, attn_logit_softcapping=cap)
    if cap is None:
        assert not load_value_model(tmp_path, torch.float32).head_weight.any()
        return
    with pytest.raises(ConfigError, match=r"gemma2.* does not train yet: its attention depends on softcap"):
        load_value_model(tmp_path, torch.float32)


def test_the_explained_variance_is_the_share_of_the_returns_that_the_values_predict():
    sequences = with_values(batch())
    exact = [s.with_columns(values=s.columns.returns) for s in sequences]
    constant = [s.with_columns(values=s.columns.returns * 0 + 3) for s in sequences]
    halved = [s.with_columns(values=s.columns.returns * 0.5) for s in sequences]
    assert value_meters(exact)["value_explained_variance"] == 1.0
    assert value_meters(constant)["value_explained_variance"] == pytest.approx(0.0)
    assert value_meters(constant)["value_mean"] == 3.0
    assert value_meters(halved)["value_explained_variance"] == pytest.approx(0.75)
    assert (
        value_meters([s.with_columns(returns=s.columns.returns * 0) for s in sequences])["value_explained_variance"]
        == 0.0
    )
