"""The plan against what a learner rank and an engine really take at their peak, at two sizes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agentrl.config.loading import load, of_flags
from agentrl.config.machine import GIB
from agentrl.config.resolve import resolve_run
from agentrl.config.validate import ENGINE_GIB
from agentrl.planning.engine import ServedModel, awake
from agentrl.planning.meta import ConfigReader, built_shape
from agentrl.planning.models import RunModels
from agentrl.planning.need import MARGIN, total
from agentrl.planning.ranks import Rank, on_cpu
from agentrl.planning.shape import FLOAT32
from tests.real.engine_memory import CONTEXT, SAMPLED, SEQUENCES, EnginePeak, spec_of
from tests.real.rank_memory import PROCESSES, TOKENS, Peak
from tests.tiny import tiny_tokenizer
from tests.unit.config.test_resolve import LAPTOP

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]
DEADLINE_S = 280.0
SIZES = {  # parameters: 19 and 83 millions
    "small": LlamaConfig(
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=8,
        num_attention_heads=6,
        num_key_value_heads=2,
        vocab_size=16384,
        tie_word_embeddings=True,
    ),
    "large": LlamaConfig(
        hidden_size=640,
        intermediate_size=1792,
        num_hidden_layers=8,
        num_attention_heads=10,
        num_key_value_heads=10,
        vocab_size=32768,
        tie_word_embeddings=False,
    ),
}

SHARED = [pytest.param("bfloat16", 2, stage, id=f"two ranks at stage {stage}") for stage in (1, 3)]


@pytest.fixture(scope="module", params=SIZES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of random weights."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        LlamaForCausalLM(SIZES[request.param]).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def printed(module: str, *words: object) -> list[dict[str, int]]:
    """The lines of JSON that a process of its own prints."""
    command = [sys.executable, "-m", module, *map(str, words)]
    env = {**os.environ, "OMP_NUM_THREADS": "2", "THP_MEM_ALLOC_ENABLE": "1"}  # cluster/specs.py
    answer = subprocess.run(command, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    return [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{")]


def planned(model: Path, dtype: str, ranks: int, stage: int) -> Rank:
    flags = {"model": str(model), "model.dtype": dtype, "learner.micro_batch_tokens": str(TOKENS)}
    flags |= {"model.max_context": str(TOKENS), "max-tokens": "64"}
    flags |= {"learner.ranks": str(ranks), "learner.zero_stage": str(stage)}
    config = resolve_run(load(None, of_flags(flags.items())), LAPTOP)
    return Rank(config, RunModels.of(config, ConfigReader()))


@pytest.mark.parametrize(("dtype", "ranks", "stage"), [("bfloat16", 1, 0), ("float32", 1, 0), *SHARED])
def test_a_rank_takes_what_is_planned(model: Path, dtype: str, ranks: int, stage: int) -> None:
    rank = planned(model, dtype, ranks, stage)
    peaks = [Peak(**each) for each in printed("tests.real.rank_memory", model, dtype, ranks, stage)]
    assert [peak.updates for peak in peaks] == [3] * PROCESSES * ranks
    nbytes = median(peak.nbytes for peak in peaks)
    assert total(on_cpu(rank)) == pytest.approx(nbytes, rel=MARGIN)
    by_name = {item.name: item.nbytes for item in (*rank.state, *rank.update)}
    assert by_name["parameters"] + by_name["gradients"] + by_name["optimizer"] < nbytes


def test_an_engine_takes_what_is_planned(model: Path) -> None:
    processes = [printed("tests.real.engine_memory", model, "float32") for _ in range(PROCESSES)]
    peaks = [EnginePeak(**each) for [each] in processes]
    assert [peak.tokens for peak in peaks] == [SEQUENCES * SAMPLED] * PROCESSES
    spec = spec_of(model, "float32")
    engine = ServedModel(built_shape(model), spec.engine, spec.lora, FLOAT32, CONTEXT, is_on_gpu=False)
    nbytes = total(awake(engine, 0)) + ENGINE_GIB * GIB - median(peak.baseline for peak in peaks)
    assert nbytes == pytest.approx(median(peak.nbytes for peak in peaks), rel=MARGIN)
