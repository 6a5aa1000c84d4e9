"""The plan against what a learner rank really takes: its peak above the baseline after imports, at two sizes."""

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
from agentrl.config.resolve import resolve_run
from agentrl.planning.meta import built_shape
from agentrl.planning.models import RunModels
from agentrl.planning.need import MARGIN, total
from agentrl.planning.ranks import Rank, on_cpu
from tests.real.rank_memory import PROCESSES, TOKENS, Peak
from tests.unit.config.test_resolve import LAPTOP

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
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


@pytest.fixture(scope="module", params=SIZES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of random weights."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        LlamaForCausalLM(SIZES[request.param]).save_pretrained(folder)
    return folder


def measured(model: Path, dtype: str) -> list[Peak]:
    """What a rank takes in a process of its own, several times."""
    command = [sys.executable, "-m", "tests.real.rank_memory", str(model), dtype]
    env = {**os.environ, "OMP_NUM_THREADS": "2", "THP_MEM_ALLOC_ENABLE": "1"}  # cluster/specs.py
    answer = subprocess.run(command, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    return [Peak(**json.loads(line)) for line in answer.stdout.splitlines() if line.startswith("{")]


def planned(model: Path, dtype: str) -> Rank:
    flags = {"model": str(model), "model.dtype": dtype, "learner.micro_batch_tokens": str(TOKENS)}
    flags["model.max_context"], flags["max-tokens"] = str(TOKENS), "64"
    config = resolve_run(load(None, of_flags(flags.items())), LAPTOP)
    return Rank(config, RunModels.of(config, lambda name: built_shape(Path(name))))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_rank_takes_what_is_planned(model: Path, dtype: str) -> None:
    rank, peaks = planned(model, dtype), measured(model, dtype)
    assert [peak.updates for peak in peaks] == [3] * PROCESSES
    nbytes = median(peak.nbytes for peak in peaks)
    assert total(on_cpu(rank)) == pytest.approx(nbytes, rel=MARGIN)
    by_name = {item.name: item.nbytes for item in (*rank.state, *rank.update)}
    assert by_name["parameters"] + by_name["gradients"] + by_name["optimizer"] < nbytes
