"""Memory of a trained model: activations as autograd keeps them, state as it is published."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from agentrl.algorithms.sample import plain_sequence
from agentrl.config.machine import GIB
from agentrl.config.schema import LearnerSection, LoraSection
from agentrl.learner import heads, sharding
from agentrl.learner.batch import build_trees
from agentrl.learner.micro_batch import pack
from agentrl.learner.model import ATTENTION, PackedModel, freeze, prepare
from agentrl.learner.sequence_parallel import SequenceGroup
from agentrl.planning import trained_model
from agentrl.planning.meta import shape_of
from agentrl.planning.need import Item, total
from agentrl.planning.shape import ModelShape
from agentrl.planning.trained_model import (
    TrainedModel,
    activations,
    casts,
    layer_bytes,
    offloaded,
    parked,
    pinned_by_loading,
    state,
    update,
    weights,
)
from agentrl.types import SampleId
from tests.unit.planning.published import shape

DOCS = Path(__file__).parents[3] / "docs"
TOKENS = 64
SIZES = {
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 48,
    "vocab_size": 96,
    "tie_word_embeddings": False,
}
KINDS = {
    "llama": (LlamaForCausalLM, LlamaConfig),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config),
}


def trained(of: ModelShape, **changes: Any) -> TrainedModel:
    section = LearnerSection(ranks=changes.pop("ranks", 1), zero_stage=changes.pop("stage", 0))
    plain = TrainedModel(of, section, LoraSection(), 2, 4096, is_on_gpu=True, has_checkpointing=False)
    return replace(plain, **changes)


class Alone(SequenceGroup):
    """A group whose other ranks send what this one sends them."""

    def exchange(self, states: torch.Tensor) -> torch.Tensor:
        return states.contiguous().clone()

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        return values.clone()


def kept(
    kind: str, layers: int, compute: torch.dtype, *, checkpointing: bool, sharers: int = 1
) -> tuple[int, ModelShape]:
    """The bytes that autograd keeps from the forward pass of a real model, without its parameters; its shape.

    With several `sharers`, those of the first share of as many times the tokens.
    """
    model_class, config_class = KINDS[kind]
    config = config_class(num_hidden_layers=layers, **SIZES)
    model = model_class(config)
    model.set_attn_implementation(ATTENTION)
    prepare(model, gradient_checkpointing=checkpointing)
    model.train()
    ids = [number % 96 for number in range(TOKENS * sharers)]
    batch = [plain_sequence(SampleId(0, 0), [*ids, 1], prompt=8)]
    group = Alone(sharers, 0, cast(Any, None)) if sharers > 1 else None
    micro_batch = pack(batch, build_trees(batch, range(1)), sharers).to(torch.device("cpu"), compute, group)
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        PackedModel(model, compute)(micro_batch, lambda logprobs, _: logprobs.sum())
    return sum(storage.nbytes() for storage in storages.values()), shape_of(model, config)


@pytest.mark.parametrize("checkpointing", [False, True], ids=["whole", "checkpointed"])
@pytest.mark.parametrize("compute", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_activations_are_what_autograd_keeps(kind: str, compute: torch.dtype, checkpointing: bool) -> None:
    few, _ = kept(kind, 1, compute, checkpointing=checkpointing)
    many, of = kept(kind, 3, compute, checkpointing=checkpointing)
    model = trained(of, width=compute.itemsize, tokens=TOKENS, has_checkpointing=checkpointing)
    copies = 0 if checkpointing else casts(model, has_gradient=True).nbytes * 2 // 3
    layer = 4 * of.hidden if checkpointing else layer_bytes(model)
    assert (many - few - copies) / 2 / TOKENS == pytest.approx(layer, rel=0.001)
    again = layer_bytes(model) * TOKENS if checkpointing else 0  # one layer is computed again
    assert activations(model).nbytes == 3 * layer * TOKENS + again


@pytest.mark.parametrize("sharers", [2, 4])
@pytest.mark.parametrize("compute", [torch.bfloat16, torch.float32], ids=str)
def test_a_rank_that_shares_micro_batches_keeps_the_activations_of_its_share(
    compute: torch.dtype, sharers: int
) -> None:
    few, _ = kept("qwen3", 1, compute, checkpointing=False, sharers=sharers)
    many, of = kept("qwen3", 3, compute, checkpointing=False, sharers=sharers)
    section = LearnerSection(ranks=sharers, sequence_parallel=sharers)
    model = trained(of, width=compute.itemsize, tokens=TOKENS, section=section)
    copies = casts(model, has_gradient=True).nbytes * 2 // 3
    assert (many - few - copies) / 2 / TOKENS == pytest.approx(layer_bytes(model), rel=0.001)


def held(model: TrainedModel) -> int:
    """Bytes of a rank's parameters, gradients and optimizer."""
    items = (*state(model), *update(model))
    return total([item for item in items if item.name in ("parameters", "gradients", "optimizer")])


@pytest.mark.parametrize(
    ("stage", "gigabytes", "wider"),
    [(0, 120, 0), (1, 31.4, 4), (2, 16.6, 2 + 2 / 64), (3, 1.9, 4 / 64)],
)
def test_state_is_sharded_as_in_the_paper_of_zero(stage: int, gigabytes: float, wider: float) -> None:
    """Rajbhandari et al. 2020, figure 1: 7.5B parameters on 64 GPUs, 2 + 2 + 12 bytes a parameter.

    There weights and gradients have 16 bits, beside a float32 copy of the weights; here they are float32. At stage 0
    they are that copy themselves, at stages 1 to 3 they take `wider` bytes more for each parameter.
    """
    of = replace(shape("Qwen2.5-7B"), parameters=7_500_000_000)
    found = held(trained(of, ranks=64, stage=stage))
    assert found / 1e9 == pytest.approx(gigabytes + 7.5 * wider, abs=0.05)


def test_an_update_of_a_32b_model_takes_what_another_framework_measured() -> None:
    """torchtitan, pull request 1690: a peak of 81.85 GiB on each of 8 H100 with Qwen3-32B.

    AdamW, FSDP over 8 GPUs, full checkpointing, and from its qwen3_32b.toml 2 sequences of 4,096 tokens on each GPU.
    FSDP shards what ZeRO stage 3 does; DeepSpeed has buckets that FSDP does not have, and a copy of the parameters.
    """
    model = trained(shape("Qwen3-32B"), ranks=8, stage=3, has_checkpointing=True, tokens=2 * 4096)
    copy = 4 * -(-model.trained // 8)
    assert (total([*state(model), *update(model)]) - copy) / GIB == pytest.approx(81.85, rel=0.05)


@pytest.mark.parametrize(
    ("name", "ranks", "gib"),
    [
        ("Qwen2.5-0.5B", 1, 7.4),
        ("Qwen2.5-7B", 1, 113.5),
        ("Qwen2.5-7B", 4, 35.5),
        ("Qwen2.5-32B", 16, 38.2),
        ("Llama-3.1-70B", 16, 82.1),
        ("Llama-3.1-70B", 24, 54.8),
    ],
)
def test_a_rank_holds_16_or_20_bytes_of_each_of_its_parameters(name: str, ranks: int, gib: float) -> None:
    """AdamW in float32: weight, gradient, two moments, and at stage 3 a second copy (stage3.py:1157)."""
    stage = 3 if ranks > 1 else 0
    model = trained(shape(name), ranks=ranks, stage=stage)
    assert held(model) / GIB == pytest.approx(gib, abs=0.06)
    assert held(model) == pytest.approx((20 if stage else 16) * model.trained / ranks, rel=1e-6)


def test_deepspeed_clones_the_parameters_of_stage_3_because_it_compares_a_device_with_a_name() -> None:
    """`_create_fp32_partitions` would not, if these were equal: the copy that the plan counts would be none."""
    from deepspeed.runtime.zero import stage3

    lines = inspect.getsource(stage3.DeepSpeedZeroOptimizer_Stage3._create_fp32_partitions)
    assert "self.fp16_partitioned_groups_flat[i].device == self.device" in lines
    named = "get_accelerator().current_device_name() if not self.offload_optimizer"
    assert named in inspect.getsource(stage3.DeepSpeedZeroOptimizer_Stage3.__init__)
    assert torch.device("cuda:0") != "cuda:0"


def test_stages_1_and_2_hold_a_copy_of_their_part() -> None:
    """DeepSpeed 0.19.8 clones the partition that it updates (stage_1_and_2.py:560)."""
    whole = shape("Qwen2.5-7B").parameters
    for stage in (1, 2):
        by_name = {item.name: item.nbytes for item in state(trained(shape("Qwen2.5-7B"), ranks=4, stage=stage))}
        assert by_name == {"parameters": 4 * whole, "optimizer": 12 * -(-whole // 4)}


def test_quantized_weights_take_4_bits_and_their_constants() -> None:
    """Dettmers et al. 2023: 4.127 bits a weight, and 65B on one GPU of 48 GB in place of more than 780 GB."""
    lora = LoraSection(rank=64, load_in_4bit=True)
    model = trained(shape("LLaMA-65B"), lora=lora)
    adapters = model.trained
    head_and_embedding = 2 * shape("LLaMA-65B").embedding
    assert weights(model).nbytes - 4 * (adapters + head_and_embedding) == pytest.approx(
        shape("LLaMA-65B").matrices * 4.127 / 8, rel=0.001
    )
    assert total(state(model)) < 48e9
    assert 12 * shape("LLaMA-65B").parameters > 780e9


def test_adapters_have_gradients_and_moments_and_frozen_weights_none() -> None:
    of = shape("Qwen2.5-7B")
    model = trained(of, lora=LoraSection(rank=16))
    by_name = {item.name: item.nbytes for item in (*state(model), *update(model))}
    assert by_name["parameters"] == of.frozen_bytes(2) + 4 * of.adapters(16)
    assert by_name["gradients"] == 4 * of.adapters(16)
    assert by_name["optimizer"] == 8 * of.adapters(16)


@pytest.mark.parametrize("tie", [True, False])
def test_frozen_weights_take_the_bytes_of_a_frozen_model(tie: bool) -> None:
    config = LlamaConfig(num_hidden_layers=2, **{**SIZES, "tie_word_embeddings": tie})
    of, packed = shape_of(LlamaForCausalLM(config), config), PackedModel(LlamaForCausalLM(config), torch.bfloat16)
    whole = sum(parameter.nbytes for parameter in packed.parameters())
    assert of.frozen_bytes(4) == whole
    assert of.frozen_bytes(2) == sum(parameter.nbytes for parameter in freeze(packed).parameters()) < 0.6 * whole


@pytest.mark.parametrize(("optimizer", "bytes_per_parameter"), [("adamw", 8), ("adamw_8bit", 2)])
def test_moments_are_those_of_the_optimizer(optimizer: str, bytes_per_parameter: int) -> None:
    of = shape("Qwen2.5-0.5B")
    model = trained(of, section=LearnerSection(ranks=1, optimizer=optimizer))  # type: ignore[arg-type]
    assert {item.name: item.nbytes for item in state(model)}["optimizer"] == bytes_per_parameter * of.parameters


def test_muon_has_one_moment_for_hidden_matrices() -> None:
    of = shape("Qwen2.5-0.5B")
    model = trained(of, section=LearnerSection(ranks=1, optimizer="muon"))
    assert {item.name: item.nbytes for item in state(model)}["optimizer"] == 8 * of.parameters - 4 * of.matrices


def test_what_is_offloaded_leaves_the_gpu_for_the_host() -> None:
    of = shape("Qwen2.5-7B")
    section = LearnerSection(ranks=4, zero_stage=2, offload=True)
    away = trained(of, section=section)
    here = trained(of, ranks=4, stage=2)
    assert "optimizer" not in {item.name for item in state(away)}
    assert total(state(here)) - total(state(away)) == 12 * -(-of.parameters // 4)
    assert total(offloaded(away)) == 16 * -(-of.parameters // 4)
    assert offloaded(here) == ()


PARKED = {"zero_stage": 3, "deepspeed": {"offload_param": {"device": "cpu"}}}


def by_name(items: tuple[Item, ...]) -> dict[str, int]:
    return {item.name: item.nbytes for item in items}


@pytest.mark.parametrize("offload", [False, True], ids=["alone", "with the optimizer"])
def test_parameters_in_cpu_memory_leave_the_gpu_what_computes_and_the_copy_of_an_optimizer_that_is_there(
    offload: bool,
) -> None:
    """DeepSpeed 0.19.8, stage3.py:972 (the pinned buffer), 1157-1172 (the copy), 785 and 1337 (gradients)."""
    of = shape("Qwen2.5-7B")
    part = -(-of.parameters // 4)
    section = LearnerSection.model_validate({"ranks": 4, "offload": offload, "ema": 0.9, **PARKED})
    away = trained(of, section=section)
    held, host = by_name(state(away)), by_name(parked(away))
    assert "parameters" not in held
    assert "EMA" not in held
    assert held.get("optimizer", 0) == (0 if offload else 12 * part)
    assert host["parameters"] == host["EMA"] == 4 * part
    assert host["parameters"] + host["rounding"] == 8 * GIB
    of_gradients = 4 * part + 8 * GIB  # one of the two in a pinned buffer
    assert by_name(offloaded(away)) == ({"optimizer": 12 * part, "gradients": of_gradients} if offload else {})
    assert {"gathered parameters", "activations", "head"} <= {item.name for item in update(away)}
    assert held.get("gradients", 0) == (0 if offload else 4 * part), "a buffer that stays"
    assert "gradients" not in by_name(update(away))
    matrices = [linear.inputs * linear.outputs for linear in of.linears for _ in linear.names] + 2 * [of.embedding]
    assert pinned_by_loading(away) >= sum(1 << (-(-size // 4) * 4 - 1).bit_length() for size in matrices)
    assert 4 * part < pinned_by_loading(away) < 2 * 4 * part


@pytest.mark.parametrize(
    ("changes", "is_on_gpu"),
    [
        ({"zero_stage": 2}, True),
        ({"deepspeed": {"offload_param": {"device": "none"}}}, True),
        ({"deepspeed": {"offload_param": "cpu"}}, True),
        ({}, False),
    ],
    ids=["stage 2", "no device", "no table", "a CPU"],
)
def test_parameters_stay_on_the_device_at_other_stages_and_on_cpus(changes: dict[str, Any], is_on_gpu: bool) -> None:
    section = LearnerSection.model_validate({"ranks": 4, **PARKED, **changes})
    plain = section.model_copy(update={"deepspeed": {}})
    found, expected = (trained(shape("Qwen2.5-7B"), section=one, is_on_gpu=is_on_gpu) for one in (section, plain))
    assert parked(found) == ()
    assert state(found) == state(expected)


def test_parameters_that_are_not_pinned_when_they_arrive_go_back_to_the_system() -> None:
    options = {"offload_param": {"device": "cpu", "pin_memory": False}}
    section = LearnerSection.model_validate({"ranks": 4, "zero_stage": 3, "deepspeed": options})
    assert pinned_by_loading(trained(shape("Qwen2.5-7B"), section=section)) == 0


def test_the_copy_of_stage_3_stays_on_the_gpu_while_the_moments_wait() -> None:
    model = trained(shape("Qwen2.5-7B"), ranks=4, stage=3, is_offloaded=True)
    part = -(-model.trained // 4)
    assert (by_name(state(model))["optimizer"], by_name(offloaded(model))["optimizer"]) == (4 * part, 8 * part)
    assert by_name(update(model))["optimizer"] == 8 * part


def test_the_chunks_of_the_head_are_those_of_the_learner_and_of_the_page() -> None:
    assert (trained_model.CHUNK_LOGITS, trained_model.KEPT_LOGITS) == (heads.CHUNK_LOGITS, heads.KEPT_LOGITS)
    [row] = [line for line in (DOCS / "plan.md").read_text().splitlines() if line.startswith("| head |")]
    shown = (heads.CHUNK_LOGITS["cuda"], heads.CHUNK_LOGITS["cpu"], heads.KEPT_LOGITS)
    assert [2 ** int(power) for power in re.findall(r"2\^(\d+)", row)] == list(shown)


def test_the_buckets_are_those_of_deepspeed() -> None:
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    defaults = DeepSpeedZeroConfig()
    assert defaults.reduce_bucket_size == trained_model.BUCKET
    assert trained_model.BUCKET_ON_CPU == sharding.BUCKET_ON_CPU
    assert defaults.max_live_parameters == defaults.max_reuse_distance == trained_model.LIVE


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, {"gradients", "activations", "16-bit copies", "head"}),
        ({"width": 4}, {"gradients", "activations", "head"}),
        ({"stage": 3, "ranks": 8}, {"activations", "gathered parameters", "head"}),
        ({"stage": 1, "ranks": 8}, {"gradients", "gradient buckets", "activations", "16-bit copies", "head"}),
        ({"has_logits": False}, {"gradients", "activations", "16-bit copies", "gradients of queries"}),
        ({"has_logits": False, "width": 4}, {"gradients", "activations"}),
        ({"is_offloaded": True}, {"gradients", "optimizer", "activations", "16-bit copies", "head"}),
    ],
)
def test_an_update_adds_these_terms(changes: dict[str, Any], names: set[str]) -> None:
    assert {item.name for item in update(trained(shape("Qwen2.5-7B"), **changes))} == names


@pytest.mark.parametrize(("keys", "copies"), [({}, 5), ({"sequence_parallel": 4}, 19), ({"deterministic": False}, 1)])
def test_gradients_of_queries_that_are_exact_take_copies_beside_long_sequences(
    keys: dict[str, Any], copies: int
) -> None:
    of, tokens = shape("Qwen2.5-7B"), 131_072  # 28 heads, 132 multiprocessors
    section = LearnerSection(ranks=4, **keys)
    model = trained(of, section=section, tokens=tokens)
    assert trained_model.attention_gradients(model).nbytes == copies * 4 * tokens * 3584
    names = {item.name for item in update(model)}
    assert len(names & {"head", "gradients of queries"}) == 1, "the head's memory is free by then"
    short = replace(model, longest=tokens // 64)  # 64 sequences keep all multiprocessors busy
    assert trained_model.attention_gradients(short).nbytes == 4 * tokens * 3584
