"""Optimizers by name, on a tiny model."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from agentrl.config.schema import LearnerSection
from agentrl.learner.model import PackedModel, load_model
from agentrl.learner.optimizers import MuonAdamW, make_optimizer
from agentrl.learner.shards import Shard, StateFiles, named_state, write
from tests.tiny import tiny_model


@pytest.fixture
def model(tmp_path: Path) -> PackedModel:
    return load_model(tiny_model(tmp_path), torch.float32)


def step(model: PackedModel, optimizer: torch.optim.Optimizer, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=random)
    optimizer.step()


def test_muon_moves_hidden_matrices_and_adamw_the_rest(model: PackedModel):
    optimizer = make_optimizer(model, LearnerSection(lr=1e-3, optimizer="muon"))
    assert isinstance(optimizer, MuonAdamW)
    other = copy.deepcopy(model)
    adamw = make_optimizer(other, LearnerSection(lr=1e-3))
    step(model, optimizer, 0)
    step(other, adamw, 0)
    same = {n for (n, a), b in zip(model.named_parameters(), other.parameters(), strict=True) if torch.equal(a, b)}
    assert same == {n for n, p in model.named_parameters() if p.ndim < 2 or "embed" in n}


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("tie", [True, False])
def test_weight_decay_spares_norms_biases_and_embeddings(tmp_path: Path, optimizer: str, tie: bool):
    model = load_model(tiny_model(tmp_path, tie=tie), torch.float32)
    model.model.model.layers[0].mlp.up_proj.bias = torch.nn.Parameter(torch.ones(128))
    section = LearnerSection.model_validate({"lr": 0.1, "optimizer": optimizer, "weight_decay": 0.5})
    before = copy.deepcopy(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)  # what moves is decay
    make_optimizer(model, section).step()
    for (name, new), old in zip(model.named_parameters(), before.parameters(), strict=True):
        is_spared = any(part in name for part in ("norm", "bias", "embed_tokens"))
        torch.testing.assert_close(new, old if is_spared else 0.95 * old, msg=name)


def test_adamw_with_weight_decay_is_that_of_pytorch_with_groups(model: PackedModel):
    other = copy.deepcopy(model)
    optimizer = make_optimizer(model, LearnerSection(lr=1e-2, weight_decay=0.3))
    named = dict(other.named_parameters())
    spared = {name for name in named if "norm" in name or "embed_tokens" in name}
    groups = [
        {"params": [named[name] for name in named if name not in spared]},
        {"params": [named[name] for name in spared], "weight_decay": 0.0},
    ]
    plain = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.3)
    for seed in range(3):
        step(model, optimizer, seed)
        step(other, plain, seed)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, named[name], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("optimizer", "groups"), [("adamw", 1), ("muon", 2)])
def test_without_weight_decay_the_parameters_of_adamw_are_one_group(model: PackedModel, optimizer: str, groups: int):
    section = LearnerSection.model_validate({"lr": 1e-3, "optimizer": optimizer})
    assert len(make_optimizer(model, section).param_groups) == groups


def test_a_step_of_muon_is_orthogonal_and_as_large_as_one_of_adamw(model: PackedModel):
    parameter = model.model.get_submodule("model.layers.0.mlp.up_proj").weight
    before = parameter.detach().clone()
    step(model, make_optimizer(model, LearnerSection(lr=1e-3, optimizer="muon")), 0)
    update = (before - parameter.detach()) / 1e-3
    assert update.square().mean().sqrt().item() == pytest.approx(0.2, rel=0.2)
    values = torch.linalg.svdvals(update) / (0.2 * max(update.shape) ** 0.5)
    assert 0.6 < values.min() <= values.max() < 1.3


def shards(model: PackedModel) -> list[Shard]:
    return [Shard(name, 0, parameter.numel(), parameter) for name, parameter in model.named_parameters()]


def test_a_muon_saved_by_three_ranks_goes_on_exactly(model: PackedModel, tmp_path: Path):
    section = LearnerSection(lr=1e-3, optimizer="muon")
    optimizer = make_optimizer(model, section)
    step(model, optimizer, 0)
    other = copy.deepcopy(model)
    resumed = make_optimizer(other, section)
    for rank in range(3):
        write(named_state((one.share(rank, 3) for one in shards(model)), optimizer.state), tmp_path / "state", rank)
    StateFiles(tmp_path / "state").restore(shards(other), resumed.state)
    for seed in (1, 2):
        step(model, optimizer, seed)
        step(other, resumed, seed)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("kept", ["matrices", "others"])
def test_muon_trains_matrices_alone_and_none(model: PackedModel, kept: str):
    """Adapters are matrices alone."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_((parameter.ndim == 2 and "embed" not in name) is (kept == "matrices"))
    optimizer = make_optimizer(model, LearnerSection(lr=1e-3, optimizer="muon"))
    before = copy.deepcopy(model)
    step(model, optimizer, 0)
    for (name, new), old in zip(model.named_parameters(), before.parameters(), strict=True):
        assert torch.equal(new, old) is not new.requires_grad, name
