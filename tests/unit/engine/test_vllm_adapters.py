"""Adapters in vLLM: the layers it adapts, and a completion that a publication cut in two."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from agentrl.config.schema import LoraSection
from agentrl.engine.vllm.sampling import joined, rest
from agentrl.engine.vllm.settings import linear_layers, lora_options
from agentrl.learner.lora import add_adapters
from agentrl.learner.model import load_model
from agentrl.types import Completion, Sampling, Version, VersionSpan
from tests.tiny import tiny_model


@pytest.mark.parametrize("tie", [True, False])
def test_the_engine_adapts_the_layers_that_the_learner_adapts(tmp_path: Path, tie: bool) -> None:
    folder = tiny_model(tmp_path, tie=tie)
    model = load_model(folder, torch.float32).model
    add_adapters(model, LoraSection(rank=2, alpha=4))
    adapted = {name.split(".lora_A")[0].rsplit(".", 1)[1] for name in model.state_dict() if ".lora_A" in name}
    assert linear_layers(folder) == adapted
    assert lora_options(LoraSection(rank=2, targets="q_proj, v_proj"), folder)["lora_target_modules"] == [
        "q_proj",
        "v_proj",
    ]


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
