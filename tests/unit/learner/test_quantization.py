"""QLoRA: the policy is exactly its quantized weights with the adapters, trained and published."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from agentrl.config.schema import LoraSection
from agentrl.learner import reference
from agentrl.learner.lora import adapters_off, add_adapters, merged_state
from agentrl.learner.model import PackedModel, checkpoint_tensors, load_model
from tests.tiny import tiny_model
from tests.unit.learner.synthetic import plain_model
from tests.unit.learner.test_lora import CPU, gradients, learned, logprobs, trained, whole, with_adapters

pytest.importorskip("bitsandbytes", reason="needs agentrl-core[bitsandbytes]")

SECTION = LoraSection(rank=4, alpha=8, load_in_4bit=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def quantized(folder: Path, compute: torch.dtype = torch.float32) -> PackedModel:
    return with_adapters(load_model(folder, compute, quantized_on=CPU), SECTION)


def base(model: PackedModel) -> dict[str, Tensor]:
    """The quantized weights, in float32, by the names of a model without adapters."""
    with torch.no_grad():
        kept = {name: parameter.clone() for name, parameter in trained(model).items()}
        for parameter in trained(model).values():
            parameter.zero_()
        state = {name: tensor.clone() for name, tensor in merged_state(model.model, whole)}
        for name, parameter in trained(model).items():
            parameter.copy_(kept[name])
    return state


def dequantized(folder: Path, model: PackedModel) -> PackedModel:
    """A model in float32 with the weights that quantization left."""
    plain = load_model(folder, torch.float32)
    plain.model.load_state_dict(base(model))
    return plain


def test_layers_are_in_4_bits_and_head_and_adapters_in_float32(folder: Path):
    model = quantized(folder)
    kinds = {name: parameter.dtype for name, parameter in model.named_parameters()}
    assert {kinds[name] for name in kinds if name.endswith("proj.base_layer.weight")} == {torch.uint8}
    assert {kinds[name] for name in trained(model)} == {model.head_weight.dtype} == {torch.float32}
    assert all(parameter.dtype.is_floating_point for parameter in trained(model).values())


def test_merged_weights_are_the_policy_under_the_names_of_the_checkpoint(folder: Path):
    model, merged, plain = quantized(folder), load_model(folder, torch.float32), plain_model(folder)
    state = dict(merged_state(model.model, whole))
    merged.model.load_state_dict(state)
    torch.testing.assert_close(logprobs(merged), logprobs(model), atol=1e-5, rtol=0)
    named = dict(checkpoint_tensors(model.model, state.items()))
    assert named.keys() == dict(checkpoint_tensors(plain, plain.state_dict().items())).keys()


def test_loss_and_gradient_are_those_of_adapters_over_the_dequantized_weights(folder: Path):
    model = quantized(folder)
    loss = learned(model)
    plain = dequantized(folder, model)
    add_adapters(plain.model, LoraSection(rank=4, alpha=8))
    with torch.no_grad():
        for name, parameter in trained(plain).items():
            parameter.copy_(trained(model)[name])
    assert loss == pytest.approx(learned(plain), abs=1e-5)
    expected, got = dict(gradients(plain)), dict(gradients(model))
    assert got.keys() == expected.keys() == trained(model).keys()
    for name, gradient in got.items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-5, rtol=1e-4)


def test_the_reference_is_the_quantized_model_whether_it_moves_or_not(folder: Path):
    model, moving = quantized(folder), load_model(folder, torch.float32)
    with adapters_off(model.model):
        torch.testing.assert_close(logprobs(model), logprobs(dequantized(folder, model)), atol=1e-5, rtol=0)
        assert not torch.allclose(logprobs(model), logprobs(moving), atol=1e-3)
    others = {f"model.{name}" for name in model.model.all_tied_weights_keys}
    reference.move(moving, ((n, t) for n, t in merged_state(model, whole) if n not in others), ema=0.0)
    torch.testing.assert_close(logprobs(moving), logprobs(model), atol=1e-5, rtol=0)


def test_layers_compute_in_the_type_of_training(folder: Path):
    model = quantized(folder, torch.bfloat16)
    assert {getattr(m, "compute_dtype", None) for m in model.modules()} - {None} == {torch.bfloat16}
    assert learned(model) == pytest.approx(learned(quantized(folder)), abs=1e-2)
    got = dict(gradients(model))
    assert got.keys() == trained(model).keys()
    assert all(gradient.dtype == torch.float32 and gradient.any() for gradient in got.values())
