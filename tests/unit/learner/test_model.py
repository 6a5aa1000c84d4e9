from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from inspect import getmodule, getsource
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    BartConfig,
    BertConfig,
    CohereConfig,
    FalconConfig,
    Gemma2Config,
    GptOssConfig,
    GraniteConfig,
    JambaConfig,
    Lfm2Config,
    Llama4TextConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    MptConfig,
    NemotronConfig,
    PhiConfig,
    PhimoeConfig,
    PhimoeForCausalLM,
    StableLmConfig,
    StableLmForCausalLM,
)
from transformers.core_model_loading import revert_weight_conversion
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from agentrl.algorithms.grpo import GRPO
from agentrl.algorithms.sample import TrainSequence, plain_sequence
from agentrl.config.models import OWN_ATTENTION
from agentrl.errors import ConfigError, LearnerError
from agentrl.learner import heads
from agentrl.learner.attention import tiles
from agentrl.learner.batch import build_trees, plan_micro_batches
from agentrl.learner.loss import MicroBatchLoss
from agentrl.learner.micro_batch import MicroBatch, dummy_micro_batch, pack
from agentrl.learner.model import PackedModel, attend, checkpoint_tensors, freeze, load_model, set_modes
from agentrl.learner.value_model import load_value_model
from agentrl.losses.terms import Meter, means
from agentrl.planning.meta import built_shape
from agentrl.types import SampleId
from tests.tiny import tiny_gemma2, tiny_model
from tests.unit.learner.synthetic import (
    batch,
    padded,
    plain_kl,
    plain_logprobs,
    plain_loss,
    plain_model,
    sequence,
    with_advantages,
)

SECTION = GRPO.Config(tis_cap=1.1)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def model(folder: Path) -> PackedModel:
    return load_model(folder, torch.float32)


def with_reference(row: MicroBatch, reference: Tensor) -> MicroBatch:
    return replace(row, columns={**row.columns, "reference": reference.detach()})


def gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    named = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return named


def learned(
    model: PackedModel, sequences: list[TrainSequence], ranks: int = 1, budget: int = 4096
) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of a batch; the micro-batches of all ranks run one after the other."""
    scale, loss = 1 / sum(s.actions for s in sequences), 0.0
    trees = build_trees(sequences, range(len(sequences)))
    for content in (content for of_rank in plan_micro_batches(trees, ranks, budget) for content in of_rank):
        row = (pack(sequences, content) if content else dummy_micro_batch(sequences, trees)).to(CPU, torch.float32)
        value = model(row, MicroBatchLoss(GRPO(SECTION), row, scale, Meter()))
        value.backward()
        loss += value.item()
    return loss, gradients(model.model)


def assert_same(one: tuple[float, dict[str, Tensor]], other: tuple[float, dict[str, Tensor]]) -> None:
    assert one[0] == pytest.approx(other[0], abs=1e-5)
    assert one[1].keys() == other[1].keys()
    for name, gradient in one[1].items():
        torch.testing.assert_close(gradient, other[1][name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("tie", [True, False])
def test_loss_and_gradient_equal_plain_padded_pytorch(tmp_path: Path, temperature: float, tie: bool):
    folder, sequences = tiny_model(tmp_path, tie=tie), batch(temperature=temperature)
    plain = plain_model(folder)
    loss = plain_loss(plain, sequences, SECTION)
    loss.backward()
    assert_same(learned(load_model(folder, torch.float32), sequences), (loss.item(), gradients(plain)))


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1000), ranks=st.integers(1, 5), budget=st.integers(1, 120), shuffle=st.randoms())
def test_splitting_packing_and_order_change_neither_loss_nor_gradient(
    model: PackedModel, seed: int, ranks: int, budget: int, shuffle: random.Random
):
    sequences = batch(seed=seed)
    whole = learned(model, sequences)
    shuffle.shuffle(sequences)
    assert_same(learned(model, sequences, ranks, budget), whole)


def test_sharing_a_prompt_changes_neither_loss_nor_gradient(model: PackedModel):
    sequences = batch()
    alone = [replace(s, sample=s.sample._replace(group=n)) for n, s in enumerate(sequences)]
    assert_same(learned(model, alone), learned(model, sequences))


def test_small_chunks_and_tiles_change_neither_loss_nor_gradient(model: PackedModel, monkeypatch: pytest.MonkeyPatch):
    sequences = batch()
    whole = learned(model, sequences)
    monkeypatch.setitem(heads.CHUNK_LOGITS, "cpu", 3 * 320)
    monkeypatch.setattr(tiles, "TILE", 16)
    assert_same(learned(model, sequences), whole)


def test_logprobs_equal_transformers_own(folder: Path, model: PackedModel):
    sequences = batch(temperature=1.3)
    row = pack(sequences, build_trees(sequences, range(len(sequences)))).to(CPU, torch.float32)
    logprobs, mask = plain_logprobs(plain_model(folder), sequences)
    values = iter(model(row).tolist())
    for index, actions in row.members:
        got = torch.tensor([next(values) for _ in range(actions)])
        torch.testing.assert_close(got, logprobs[index][mask[index] == 1], atol=1e-5, rtol=1e-5)


def test_the_statistics_are_those_of_plain_pytorch(folder: Path, model: PackedModel):
    sequences = batch()
    meter = Meter()
    row = pack(sequences, build_trees(sequences, range(len(sequences)))).to(CPU, torch.float32)
    reference = model(row) + 0.1
    section = GRPO.Config(tis_cap=1.1, kl_coef=0.5)
    loss = model(row, MicroBatchLoss(GRPO(section), with_reference(row, reference), 1 / len(row.targets_A), meter))
    plain = plain_model(folder)
    logprobs, mask = plain_logprobs(plain, sequences)
    ratio = (logprobs - padded(sequences, "sampler")).exp()
    total = mask.sum()
    k3 = torch.tensor(0.1).exp() - 0.1 - 1
    assert means([meter.sums()])["reference_kl"] == pytest.approx((k3).item(), rel=1e-3)
    assert means([meter.sums()])["importance_mean"] == pytest.approx(
        ((ratio.clamp(max=1.1) * mask).sum() / total).item(), rel=1e-5
    )
    assert means([meter.sums()])["importance_capped"] == pytest.approx((((ratio > 1.1) * mask).sum() / total).item())
    assert means([meter.sums()])["mismatch_kl"] == pytest.approx(
        (((ratio - 1 - ratio.log()) * mask).sum() / total).item(), rel=1e-4
    )
    penalty = 0.5 * k3 * (ratio.clamp(max=1.1) * mask).sum() / total
    assert loss.item() == pytest.approx(plain_loss(plain, sequences, section).item() + penalty.item(), abs=1e-5)
    assert 0 < means([meter.sums()])["entropy"] < torch.tensor(320.0).log()


@pytest.mark.parametrize("old_logprobs", ["learner", "sampler"])
def test_the_gradient_of_the_kl_is_that_of_the_divergence_in_float64(
    tmp_path: Path, folder: Path, model: PackedModel, old_logprobs: Literal["learner", "sampler"]
):
    sequences = [with_advantages(s, 0.0) for s in batch()]
    other = tiny_model(tmp_path, seed=7)
    row = pack(sequences, build_trees(sequences, range(len(sequences)))).to(CPU, torch.float32)
    reference = load_model(other, torch.float32)(row).detach()
    section = GRPO.Config(kl_coef=0.5, tis_cap=1.1, old_logprobs=old_logprobs)
    model(
        row, MicroBatchLoss(GRPO(section), with_reference(row, reference), 1 / len(row.targets_A), Meter())
    ).backward()
    exact = plain_model(folder, torch.float64)
    (0.5 * plain_kl(exact, plain_model(other, torch.float64), sequences, 1.1)).backward()
    wanted = gradients(exact)
    for name, gradient in gradients(model.model).items():
        torch.testing.assert_close(gradient.double(), wanted[name], atol=1e-6, rtol=1e-4)


def test_bfloat16_logits_are_not_rounded(model: PackedModel):
    """Logprobs equal those of a float64 product of the bfloat16 factors; with rounded logits they differ by 0.1."""
    random = torch.Generator().manual_seed(0)
    hidden = torch.randn(64, 256, generator=random).bfloat16()
    weight = torch.randn(512, 256, generator=random).bfloat16()
    targets = torch.randint(512, (64,), generator=random)
    exact = (hidden.double() @ weight.double().T).log_softmax(-1).gather(1, targets[:, None]).squeeze(1)
    before = torch.backends.mkldnn.matmul.fp32_precision
    got = heads.logprobs(hidden, weight, targets, torch.ones(64))
    torch.testing.assert_close(got.double(), exact, atol=1e-3, rtol=0)
    assert torch.backends.mkldnn.matmul.fp32_precision == before


def test_the_gradient_of_a_shared_token_is_summed_in_float32(folder: Path):
    """64 answers to one prompt: the first token of each is predicted by the same hidden state."""
    model = load_model(folder, torch.bfloat16)
    sequences = [
        sequence(SampleId(0, n), [1, 2, 3 + n], [0, 0, 1], [0.0] * 3, [0.0, 0.0, 1.0 + n / 64]) for n in range(64)
    ]
    seen: list[Tensor] = []

    def watch(module: torch.nn.Module, args: object, out: BaseModelOutputWithPast) -> None:
        out.last_hidden_state.register_hook(seen.append)

    handle = model.model.base_model.register_forward_hook(watch)
    row = pack(sequences, build_trees(sequences, range(64))).to(CPU, torch.bfloat16)
    model(row, MicroBatchLoss(GRPO(SECTION), row, 1.0, Meter())).backward()
    handle.remove()
    model.model.zero_grad()
    together = seen[0][0, int(row.source_A[0])]
    assert together.dtype == torch.float32
    assert not torch.equal(together, together.bfloat16().float())


def test_old_logprobs_of_the_sampler_switch_the_truncated_weight_off(folder: Path, model: PackedModel):
    sequences = batch()
    row = pack(sequences, build_trees(sequences, range(len(sequences)))).to(CPU, torch.float32)
    section, meter = GRPO.Config(old_logprobs="sampler"), Meter()
    loss = model(row, MicroBatchLoss(GRPO(section), row, 1 / len(row.targets_A), meter))
    logprobs, mask = plain_logprobs(plain_model(folder), sequences)
    ratio, advantages = (logprobs - padded(sequences, "sampler")).exp(), padded(sequences, "advantages")
    expected = -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.28) * advantages) * mask
    assert loss.item() == pytest.approx((expected.sum() / mask.sum()).item(), abs=1e-5)
    assert (means([meter.sums()])["importance_mean"], means([meter.sums()])["importance_capped"]) == (1.0, 0.0)


@pytest.mark.parametrize("tie", [True, False])
def test_tensors_have_the_names_of_the_checkpoint(tmp_path: Path, tie: bool):
    folder = tiny_model(tmp_path, tie=tie)
    model = load_model(folder, torch.float32).model
    named = dict(checkpoint_tensors(model, model.state_dict().items()))
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert sorted(named) == sorted(file.keys())
        assert all(torch.equal(file.get_tensor(name), tensor) for name, tensor in named.items())


def test_a_mixture_of_experts_is_written_layer_by_layer_as_transformers_writes_it_whole():
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 11, "num_attention_heads": 2}
    model = MixtralForCausalLM(MixtralConfig(vocab_size=64, num_key_value_heads=2, num_local_experts=3, **sizes))
    state = model.state_dict()
    whole, seen = revert_weight_conversion(model, dict(state)), set()

    def named() -> Iterator[tuple[str, Tensor]]:
        for name, tensor in state.items():
            seen.add(name)
            yield name, tensor

    tensors, expert = {}, "model.layers.0.block_sparse_moe.experts.2.w2.weight"
    for name, tensor in checkpoint_tensors(model, named()):
        tensors[name] = tensor
        if name == expert:
            assert sum(".layers.1." in read for read in seen) <= 1, "the next layer was read"
    assert expert in tensors
    assert tensors.keys() == whole.keys()
    assert all(torch.equal(tensor, whole[name]) for name, tensor in tensors.items())


UNCAPPED: dict[str, Any] = {"attn_logit_softcapping": None, "final_logit_softcapping": None}


@pytest.mark.parametrize(
    "make", [tiny_model, partial(tiny_model, tie=False), partial(tiny_gemma2, vocab_size=320, **UNCAPPED)]
)
def test_a_frozen_model_takes_less_memory_and_no_bit_of_its_outputs_differs(tmp_path: Path, make: Any) -> None:
    make(tmp_path)
    model = load_model(tmp_path, torch.bfloat16).eval()
    row = pack(batch(), build_trees(batch(), range(12))).to(CPU, torch.bfloat16)
    with torch.no_grad():
        expected = model(row)
        assert torch.equal(freeze(model)(row), expected)
    kept = {name for name, values in model.named_parameters() if values.dtype == torch.float32}
    assert all("embed" in name or "norm" in name for name in kept), kept
    assert not any(values.requires_grad for values in model.parameters())


def test_a_folder_without_a_model_is_refused_by_name(tmp_path: Path):
    with pytest.raises(ConfigError, match=str(tmp_path)):
        load_model(tmp_path, torch.float32)


def test_a_sequence_that_begins_with_a_sampled_token_is_refused(model: PackedModel):
    [one] = batch(1, 1)
    headless = plain_sequence(one.sample, one.ids.tolist(), prompt=0)
    with pytest.raises(LearnerError, match="begins with a sampled token"):
        pack([headless], build_trees([headless], [0]))


def test_an_architecture_whose_attention_is_not_exchangeable_is_refused_by_name(tmp_path: Path):
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    StableLmForCausalLM(StableLmConfig(**sizes, num_attention_heads=2, num_key_value_heads=2)).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"\(stablelm\) has an architecture agentrl does not train yet: .*attention"):
        load_model(tmp_path, torch.float32)


SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
OWN = [
    FalconConfig(**SIZES),
    MptConfig(vocab_size=64, d_model=32, n_heads=2, n_layers=1, max_seq_len=64),
    Llama4TextConfig(**SIZES, num_key_value_heads=2, head_dim=16, intermediate_size=32, intermediate_size_mlp=32),
]


@pytest.mark.parametrize("config", OWN, ids=lambda config: config.model_type)
@pytest.mark.parametrize("load", [load_model, load_value_model])
def test_an_attention_that_cannot_be_exchanged_is_refused_by_name(load: Any, config: Any, tmp_path: Path):
    config.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=rf"\({config.model_type}\) has an architecture agentrl does not train yet"):
        load(tmp_path, torch.float32)


def test_all_architectures_of_transformers_with_an_attention_of_their_own_are_known():
    kinds = [(kind, getattr(transformers, name)) for kind, name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items()]
    fixed = {kind for kind, model in kinds if not model._supports_attention_backend}
    own = {kind for kind, model in kinds if "ALL_ATTENTION_FUNCTIONS" not in getsource(getmodule(model))}
    assert OWN_ATTENTION - {"llama4", "llama4_text"} == fixed & own


def test_a_model_of_another_form_is_refused_by_name(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(LlamaForCausalLM, "base_model_prefix", "language_model")
    with pytest.raises(ConfigError, match=r"\(llama\) has an architecture agentrl does not train yet"):
        load_model(folder, torch.float32)


def test_an_architecture_that_packing_would_train_wrong_is_refused(tmp_path: Path):
    """BART's decoder counts the positions itself, which only its outputs show."""
    sizes = {"d_model": 32, "decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 32, "init_std": 0.3}
    config = BartConfig(vocab_size=64, **sizes, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=32)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"\(bart\) .* its outputs over packed sequences are off by"):
        load_model(tmp_path, torch.float32)


@pytest.mark.parametrize("arguments", [{"softcap": 50.0}, {"s_aux": torch.ones(2)}, {"dropout": 0.1}])
def test_an_argument_that_the_attention_over_packed_sequences_ignored_raises(arguments: dict[str, Any]):
    states, module = torch.ones(1, 2, 4, 16), torch.nn.Module()

    def ours(query: Tensor, *_rest: Any) -> Any:
        return query

    attend(module, states, states, states, None, attention=ours, position_ids=states, softcap=None, s_aux=None)
    with pytest.raises(TypeError, match=f"its attention depends on {next(iter(arguments))}"):
        attend(module, states, states, states, None, attention=ours, **arguments)
    attend(module.eval(), states, states, states, None, attention=ours, dropout=0.1)


UNPACKABLE = [
    (JambaConfig(**SIZES, num_key_value_heads=2, num_experts=2, use_mamba_kernels=False), "type linear_attention"),
    (Lfm2Config(**SIZES, num_key_value_heads=2, layer_types=["conv"]), "layers of type conv"),
    (BertConfig(**SIZES, intermediate_size=32), "attention is bidirectional"),
    (BertConfig(**SIZES, intermediate_size=32, is_decoder=True), "on cls.predictions.bias"),
    (PhiConfig(**SIZES, intermediate_size=32), "on lm_head.bias"),
    (Gemma2Config(**SIZES, num_key_value_heads=2, head_dim=16, final_logit_softcapping=None), "depends on softcap"),
    (Gemma2Config(**SIZES, num_key_value_heads=2, head_dim=16, attn_logit_softcapping=None), "scaled or capped"),
    (GptOssConfig(**SIZES, num_key_value_heads=2, head_dim=16, num_local_experts=4), "depends on s_aux"),
    (CohereConfig(**SIZES, num_key_value_heads=2, pad_token_id=0, eos_token_id=1), "scaled or capped"),
    (GraniteConfig(**SIZES, num_key_value_heads=2, logits_scaling=1.001), "scaled or capped"),
    (NemotronConfig(**SIZES, num_key_value_heads=2), "do not pass `attention` on"),
]


@pytest.mark.parametrize(("config", "why"), UNPACKABLE, ids=lambda value: getattr(value, "model_type", ""))
def test_a_structure_that_packing_would_train_wrong_is_refused_whatever_its_weights(
    config: Any, why: str, tmp_path: Path
):
    """The outputs of most with their first weights differ too little, or not at all."""
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(
        ConfigError, match=rf"\({config.model_type}\) has an architecture agentrl does not train yet"
    ) as it:
        load_model(tmp_path, torch.float32)
    assert why in str(it.value)
    assert built_shape(tmp_path).unpackable in str(it.value), "a plan says the same"


def test_a_window_that_is_part_of_the_masks_alone_is_refused(tmp_path: Path):
    """Mistral passes the width of its window to attention; Phi-3.5-MoE puts it into masks, which packing replaces."""
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "sliding_window": 100, "bos_token_id": 1}
    MistralForCausalLM(MistralConfig(**sizes, **heads, eos_token_id=2)).save_pretrained(tmp_path / "said")
    load_model(tmp_path / "said", torch.float32)
    mixture = {**sizes, **heads, "num_local_experts": 2, "eos_token_id": 2}
    PhimoeForCausalLM(PhimoeConfig(**mixture)).save_pretrained(tmp_path / "masked")
    with pytest.raises(ConfigError, match=r"\(phimoe\) .* its sliding window of 100 tokens is part of its masks alone"):
        load_model(tmp_path / "masked", torch.float32)
    PhimoeForCausalLM(PhimoeConfig(**mixture | {"sliding_window": 4096 * 32})).save_pretrained(tmp_path / "wide")
    load_model(tmp_path / "wide", torch.float32)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_no_module_draws_random_numbers_in_training(tmp_path: Path, checkpointing: bool):
    """Phi-3.5-MoE chooses experts at random in training mode."""
    sizes = {"vocab_size": 320, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2}
    PhimoeForCausalLM(PhimoeConfig(**sizes, **heads, num_local_experts=4)).save_pretrained(tmp_path)
    model = load_model(tmp_path, torch.float32, gradient_checkpointing=checkpointing)
    set_modes(model.train())
    assert any(module.training for module in model.modules()) is checkpointing
    row = pack(batch(), build_trees(batch(), range(12))).to(CPU, torch.float32)
    first, again = model(row), model(row)
    assert torch.equal(first, again)
    assert torch.equal(first, model.eval()(row))
