"""Splitting, packing, order and padding change neither loss nor gradient, for every loss and every correction."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from agentrl.algorithms.config import Correction, Loss
from agentrl.algorithms.grpo import GRPO
from agentrl.algorithms.sample import TrainSequence
from agentrl.learner.batch import build_trees, plan_micro_batches
from agentrl.learner.loss import MicroBatchLoss
from agentrl.learner.micro_batch import dummy_micro_batch, pack
from agentrl.learner.model import PackedModel, load_model
from agentrl.losses.terms import Meter, means
from tests.tiny import tiny_model
from tests.unit.learner.synthetic import batch

BOUNDS = {"tis_cap": 1.5, "tis_floor": 0.4, "geometric_low": 0.8, "geometric_high": 1.2}
TERMS = {"kl_coef": 0.2, "entropy_coef": 0.1}
CASES: list[dict[str, Any]] = [
    *({"loss": loss, "correction": "none", "clip_low": 0.2, "clip_high": 0.2} for loss in get_args(Loss)),
    *({"correction": correction, **BOUNDS} for correction in get_args(Correction)),
]
Learned = tuple[float, dict[str, Tensor], dict[str, float]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PackedModel:
    return load_model(tiny_model(tmp_path_factory.mktemp("tiny")), torch.float32)


def sequences() -> list[TrainSequence]:
    """Two groups of three; the old policy, the sampler and the reference differ from the model, one token is masked."""
    rng, out = np.random.default_rng(5), []
    for row in batch(2, 3, longest=6):
        old = row.columns.sampler * 0 - 5.8 + rng.normal(0, 0.3, row.actions).astype(np.float32)
        sampler, reference = (old + rng.normal(0, 0.2, row.actions).astype(np.float32) for _ in range(2))
        weights = np.where(np.arange(row.actions) == 1, 0.0, 1.0).astype(np.float32)
        out.append(row.with_columns(old=old, sampler=sampler, reference=reference, weights=weights))
    return out


def learned(model: PackedModel, keys: dict[str, Any], rows: list[TrainSequence], ranks: int, budget: int) -> Learned:
    """Loss, gradients and meters of a batch; the micro-batches of all ranks run one after the other."""
    algorithm, meter, loss = GRPO(GRPO.Config.model_validate({**TERMS, **keys})), Meter(), 0.0
    trees = build_trees(rows, range(len(rows)))
    for content in (content for of_rank in plan_micro_batches(trees, ranks, budget) for content in of_rank):
        packed = pack(rows, content) if content else dummy_micro_batch(rows, trees)
        packed = packed.to(torch.device("cpu"), torch.float32)
        value = model(packed, MicroBatchLoss(algorithm, packed, 1 / 20, meter))
        value.backward()
        loss += value.item()
    named = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return loss, named, means([meter.sums()])


def assert_same(one: Learned, other: Learned) -> None:
    assert one[0] == pytest.approx(other[0], abs=1e-5)
    assert one[2] == pytest.approx(other[2], abs=1e-5)
    for name, gradient in one[1].items():
        torch.testing.assert_close(gradient, other[1][name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("keys", CASES, ids=lambda keys: keys.get("loss") or keys["correction"])
def test_splitting_packing_and_order_change_nothing(model: PackedModel, keys: dict[str, Any]) -> None:
    rows = sequences()
    whole = learned(model, keys, rows, 1, 4096)
    alone = [replace(row, sample=row.sample._replace(group=number)) for number, row in enumerate(rows)]
    random.Random(0).shuffle(alone)
    assert_same(learned(model, keys, alone, 5, 1), whole)
    assert_same(learned(model, keys, alone, 1, 40), whole)
    assert any(float(gradient.norm()) > 1e-3 for gradient in whole[1].values())
