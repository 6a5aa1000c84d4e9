"""Adapters in vLLM: the layers it adapts, and a completion that a publication cut in two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import OPTConfig, OPTForCausalLM
from vllm.lora.utils import is_in_target_modules

from agentrl.config.schema import LoraSection
from agentrl.engine.vllm.sampling import joined, rest
from agentrl.engine.vllm.settings import lora_options
from agentrl.learner.lora import add_adapters
from agentrl.learner.model import load_model
from agentrl.types import Completion, Sampling, Version, VersionSpan
from tests.tiny import tiny_model


def tied(folder: Path) -> None:
    tiny_model(folder)


def untied(folder: Path) -> None:
    tiny_model(folder, tie=False)


def projected(folder: Path) -> None:
    """An OPT with linear layers outside of its blocks: before the first and after the last."""
    sizes = {"vocab_size": 320, "hidden_size": 64, "ffn_dim": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    OPTForCausalLM(OPTConfig(**sizes, word_embed_proj_dim=32, max_position_embeddings=128)).save_pretrained(folder)


@pytest.mark.parametrize("make", [tied, untied, projected])
@pytest.mark.parametrize("targets", ["all-linear", "q_proj, v_proj", "self_attn.q_proj", "layers.0.self_attn.k_proj"])
def test_the_engine_adapts_the_layers_that_the_learner_adapts(
    tmp_path: Path, make: Callable[[Path], None], targets: str
) -> None:
    make(tmp_path)
    model, section = load_model(tmp_path, torch.float32).model, LoraSection(rank=2, alpha=4, targets=targets)
    add_adapters(model, section)
    adapted = {name.split(".lora_A")[0] for name in model.state_dict() if ".lora_A" in name}
    wanted = lora_options(section, tmp_path)["lora_target_modules"]
    assert adapted
    assert all(is_in_target_modules(name, wanted) for name in adapted)
    assert {*wanted} == {name.rpartition(".")[2] for name in adapted}


@pytest.mark.parametrize(("rank", "slot"), [(1, 1), (2, 8), (16, 16), (17, 32), (512, 512)])
def test_an_adapter_gets_the_smallest_slot_that_holds_it(tmp_path: Path, rank: int, slot: int) -> None:
    assert lora_options(LoraSection(rank=rank), tmp_path)["max_lora_rank"] == slot


def test_a_completion_and_its_continuation_are_one() -> None:
    one = Completion((7, 8), (-1.0, -2.0), (VersionSpan(Version(0, 3), 0, 2),), "abort")
    other = Completion((9,), (-3.0,), (VersionSpan(Version(0, 4), 0, 1),), "length")
    spans = (VersionSpan(Version(0, 3), 0, 2), VersionSpan(Version(0, 4), 2, 3))
    assert joined(one, other) == Completion((7, 8, 9), (-1.0, -2.0, -3.0), spans, "length")


def test_a_continuation_samples_what_is_left_with_other_random_numbers() -> None:
    sampling = Sampling(10, temperature=0.7, seed=5)
    assert rest(sampling, 0) == sampling
    assert rest(sampling, 4) == Sampling(6, temperature=0.7, seed=9)
    assert rest(Sampling(10), 4).seed is None


def test_a_pipeline_stage_lacks_no_layer_of_another_stage() -> None:
    from vllm.model_executor.models.utils import PPMissingLayer

    from agentrl.weights.adapter import received

    blocks = nn.ModuleList([PPMissingLayer(), *(nn.ModuleDict({"q_proj": nn.Linear(2, 2)}) for _ in range(2))])
    names = [f"layers.{number}.q_proj" for number in range(3)]
    adapter = SimpleNamespace(loras=dict.fromkeys(names), digests=(("a", "0"),))
    manager = SimpleNamespace(
        get_adapter={7: adapter}.get,
        lora_index_to_id=[7],
        modules={names[1]: None},
        model=nn.ModuleDict({"layers": blocks}),
    )
    assert received(manager, 7).unloaded == [names[2]]
    assert received(manager, 7).digests == (("a", "0"),)
