"""LoRA: the trained adapters, merged or not, are one policy, and the model under them never changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, PhimoeConfig, PhimoeForCausalLM

from agentrl.algorithms.grpo import GRPO
from agentrl.config.schema import LoraSection
from agentrl.errors import ConfigError
from agentrl.learner.batch import build_trees, plan_micro_batches
from agentrl.learner.lora import adapter_state, adapters_off, add_adapters, merged_state, write_adapter
from agentrl.learner.loss import MicroBatchLoss
from agentrl.learner.micro_batch import pack
from agentrl.learner.model import PackedModel, checkpoint_tensors, load_model
from agentrl.losses.terms import Meter
from agentrl.planning.meta import built_shape
from tests.tiny import tiny_model
from tests.unit.learner.synthetic import batch, plain_loss, plain_model

SECTION = LoraSection(rank=4, alpha=8)
ALGORITHM = GRPO.Config(tis_cap=1.1)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def model(folder: Path) -> PackedModel:
    """A model whose adapters have been trained, so to speak."""
    return with_adapters(load_model(folder, torch.float32), SECTION)


def with_adapters(model: PackedModel, section: LoraSection) -> PackedModel:
    """Add adapters that are not 0 to the model, and return it."""
    add_adapters(model.model, section)
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in trained(model).values():
            parameter += 0.05 * torch.randn(parameter.shape, generator=random)
    return model


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def logprobs(model: PackedModel) -> Tensor:
    sequences = batch()
    return model(pack(sequences, build_trees(sequences, range(len(sequences)))).to(CPU, torch.float32)).detach()


def whole(tensor: Tensor) -> Tensor:
    return tensor.detach()


def learned(model: PackedModel, budget: int = 4096) -> float:
    sequences, loss = batch(), 0.0
    scale = 1 / sum(sequence.actions for sequence in sequences)
    trees = build_trees(sequences, range(len(sequences)))
    for content in plan_micro_batches(trees, 1, budget)[0]:
        row = pack(sequences, content).to(CPU, torch.float32)
        value = model(row, MicroBatchLoss(GRPO(ALGORITHM), row, scale, Meter()))
        value.backward()
        loss += value.item()
    return loss


def gradients(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return ((name, p.grad) for name, p in model.named_parameters() if p.grad is not None)


def test_new_adapters_change_nothing_and_are_the_same_on_every_rank(folder: Path):
    base, one, other = (load_model(folder, torch.float32) for _ in range(3))
    add_adapters(one.model, SECTION)
    torch.manual_seed(123)
    add_adapters(other.model, SECTION)
    assert torch.equal(logprobs(one), logprobs(base))
    assert all(torch.equal(p, trained(other)[name]) for name, p in trained(one).items())


def test_merged_or_not_the_policy_is_the_same(folder: Path, model: PackedModel):
    merged = load_model(folder, torch.float32)
    merged.model.load_state_dict(dict(merged_state(model.model, whole)))
    torch.testing.assert_close(logprobs(merged), logprobs(model), atol=1e-5, rtol=0)
    assert not torch.allclose(logprobs(merged), logprobs(load_model(folder, torch.float32)), atol=1e-2)
    assert learned(merged) == pytest.approx(learned(model), abs=1e-5)


@pytest.mark.parametrize("budget", [30, 4096])
def test_merged_or_not_the_gradient_is_the_same(folder: Path, model: PackedModel, budget: int):
    """The merged weight is W + s B A. With its gradient G, dB = s G A^T and dA = s B^T G (arXiv:2106.09685, eq. 3)."""
    merged = load_model(folder, torch.float32)
    merged.model.load_state_dict(dict(merged_state(model.model, whole)))
    learned(merged, budget)
    learned(model, budget)
    s, adapters, of_merged = SECTION.alpha / SECTION.rank, trained(model.model), dict(gradients(merged.model))
    layers = {name.partition(".lora_")[0] for name in adapters}
    assert len(adapters) == 2 * len(layers) == 2 * 2 * 7, "every linear layer has both matrices"
    for layer in layers:
        A, B = (adapters[f"{layer}.lora_{matrix}.default.weight"] for matrix in "AB")  # noqa: N806
        G = of_merged[f"{layer}.weight"]  # noqa: N806
        assert G.abs().max() > 1e-4
        torch.testing.assert_close(B.grad, s * G @ A.T.detach(), atol=1e-5, rtol=0)
        torch.testing.assert_close(A.grad, s * B.T.detach() @ G, atol=1e-5, rtol=0)


def test_merged_tensors_have_the_names_of_the_checkpoint(folder: Path, model: PackedModel):
    plain = plain_model(folder)
    named = dict(checkpoint_tensors(model.model, merged_state(model.model, whole)))
    assert named.keys() == dict(checkpoint_tensors(plain, plain.state_dict().items())).keys()


def test_a_reference_that_moves_gets_the_merged_weights_by_its_own_names(folder: Path, model: PackedModel):
    parameters = dict(load_model(folder, torch.float32).named_parameters())
    tied = {f"model.{name}" for name in model.model.all_tied_weights_keys}
    assert {name for name, _ in merged_state(model, whole)} - tied == parameters.keys()


def test_a_frozen_head_gets_no_gradient_and_its_hidden_states_the_same(folder: Path):
    free, frozen = load_model(folder, torch.float32), load_model(folder, torch.float32)
    frozen.head_weight.requires_grad_(False)
    assert learned(free) == learned(frozen)
    assert frozen.head_weight.grad is None
    layer = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(frozen.model.get_parameter(layer).grad, free.model.get_parameter(layer).grad)


def test_without_its_adapters_the_model_is_the_reference_and_afterwards_the_policy_again(
    folder: Path, model: PackedModel
):
    before = logprobs(model)
    with adapters_off(model.model):
        assert torch.equal(logprobs(model), logprobs(load_model(folder, torch.float32)))
    assert torch.equal(logprobs(model), before)


@pytest.mark.parametrize("budget", [30, 4096])
def test_loss_and_gradient_equal_those_of_peft_in_plain_padded_pytorch(folder: Path, model: PackedModel, budget: int):
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    plain = get_peft_model(plain_model(folder), config)
    plain.load_state_dict({f"base_model.model.{name}": tensor for name, tensor in model.model.state_dict().items()})
    loss = plain_loss(plain, batch(), ALGORITHM)
    loss.backward()
    assert learned(model, budget) == pytest.approx(loss.item(), abs=1e-5)
    expected = {name.removeprefix("base_model.model."): gradient for name, gradient in gradients(plain)}
    got = dict(gradients(model.model))
    assert got.keys() == expected.keys() == trained(model.model).keys()
    for name, gradient in got.items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-5, rtol=1e-4)


def test_an_update_changes_adapters_only(model: PackedModel):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    learned(model)
    optimizer.step()
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == trained(model).keys()


def test_what_is_written_is_an_adapter_that_peft_reads(folder: Path, model: PackedModel, tmp_path: Path):
    write_adapter(model.model, adapter_state(model.model, whole), folder, tmp_path)
    read = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), tmp_path)
    again = load_model(folder, torch.float32)
    again.model.load_state_dict(read.merge_and_unload().state_dict())
    torch.testing.assert_close(logprobs(again), logprobs(model), atol=1e-5, rtol=0)


@pytest.mark.parametrize("targets", ["q_proj,v_proj", "q_proj, v_proj", " self_attn.q_proj ,v_proj"])
def test_only_the_named_layers_get_adapters(folder: Path, targets: str):
    model = load_model(folder, torch.float32)
    add_adapters(model.model, LoraSection(rank=2, alpha=4, targets=targets))
    assert {name.split(".lora_")[0].rsplit(".", 1)[1] for name in trained(model)} == {"q_proj", "v_proj"}


@pytest.mark.parametrize(
    ("targets", "named"),
    [
        ("c_attn", "'c_attn'"),
        ("q_proj,v_prj", "'v_prj'"),
        ("q_proj,", "''"),
        ("proj,q_proj,norm", "'proj', 'norm'"),
        (".*_proj", "'.*_proj'"),
        ("all-linear,q_proj", "'all-linear'"),
        ("lm_head", "'lm_head'"),
        ("q_proj,lm_head", "'lm_head'"),
        ("q_proj,embed_tokens", "'embed_tokens'"),
    ],
)
@pytest.mark.parametrize("tie", [True, False])
def test_each_name_that_is_no_linear_layer_of_a_block_is_refused(tmp_path: Path, targets: str, named: str, tie: bool):
    model = load_model(tiny_model(tmp_path, tie=tie), torch.float32).model
    with pytest.raises(ConfigError) as refused:
        add_adapters(model, LoraSection(rank=2, alpha=4, targets=targets))
    assert f"lora.targets: the model's blocks have no linear layer {named}, and nothing else" in str(refused.value)
    assert "Known: down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj." in str(refused.value)


def test_a_router_that_derives_from_a_linear_layer_gets_no_adapter(tmp_path: Path):
    """Phi-3.5-MoE's router returns the weights of the chosen experts too: with an adapter its forward pass failed."""
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    tokens = {"vocab_size": 512, "bos_token_id": 1, "eos_token_id": 2}
    config = PhimoeConfig(num_key_value_heads=2, num_local_experts=3, **sizes, **tokens)
    PhimoeForCausalLM(config).save_pretrained(tmp_path)
    model = with_adapters(load_model(tmp_path, torch.float32), SECTION)
    adapted = {name.split(".lora_")[0].rpartition(".")[2] for name in trained(model)}
    assert adapted == {"q_proj", "k_proj", "v_proj", "o_proj"}
    assert built_shape(tmp_path).adapters(SECTION.rank) == sum(values.numel() for values in trained(model).values())
    learned(model)
    assert {name for name, _ in gradients(model)} == set(trained(model))


def test_a_model_without_linear_layers_is_refused_adapters(tmp_path: Path):
    """GPT-2's matrices are transposed (Conv1D): peft would adapt them, and they could not be merged."""
    sizes = {"n_layer": 1, "n_embd": 32, "n_head": 4, "vocab_size": 512, "n_positions": 128}
    GPT2LMHeadModel(GPT2Config(**sizes)).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"lora.rank: the model's blocks have no linear layer \(torch.nn.Linear\)"):
        add_adapters(load_model(tmp_path, torch.float32).model, SECTION)
