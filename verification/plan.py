"""Memory of a learner rank: the plan's against what the rank takes, at two sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from agentrl.config.loading import load, of_flags
from agentrl.config.resolve import resolve_run
from agentrl.config.schema import Config
from agentrl.learner.spec import LearnerSpec
from agentrl.planning.meta import ConfigReader
from agentrl.planning.models import RunModels
from agentrl.planning.need import MARGIN, total
from agentrl.planning.ranks import Rank
from tests.tiny import tiny_tokenizer
from verification.check import Setting, SkipError, within
from verification.combinations import GPUS
from verification.learner import rows, spec
from verification.memory import MIB
from verification.ranks import trained

TOKENS = 8192
"""Of a micro-batch. A step has two, so that gradients of the first wait while the second is computed."""
SIZES = {
    "Qwen2.5-0.5B": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
    },
    "Qwen2.5-1.5B": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
    },
}
"""By the names of the models whose shapes they are; the weights are random."""
ROOM = 1.2
"""Of what is planned, without which a size is left out."""


def rank(setting: Setting) -> str:
    """Compare the peak of updates with the plan's, with and without gradient checkpointing."""
    said = [*_compared(setting)]
    if not said:
        raise SkipError("the GPU has too little free memory for the smallest model of the check")
    return f"peak of updates with micro-batches of {TOKENS:,} tokens: {'; '.join(said)}"


def _compared(setting: Setting) -> Iterator[str]:
    """Yield the figures of each rank. Raises BoundError for one that is not what was planned."""
    for name, sizes in SIZES.items():
        model = shaped(setting.folder / name, sizes, setting.device)
        kept = spec(model, setting.device, "bfloat16", lr=1e-6, micro_batch_tokens=TOKENS)
        most = free_bytes(setting.device) / ROOM
        specs = [kept, replace(kept, gradient_checkpointing=True)]
        specs = [one for one in specs if planned_bytes(one) < most]
        for one, found in zip(specs, trained(specs, [rows(2 * TOKENS)] * 3, setting.folder), strict=True):
            expected, taken = planned_bytes(one), found.held_bytes + found.peak_bytes
            how = "with checkpointing" if one.gradient_checkpointing else "without"
            words = f"{name} {how} {taken / MIB:,.0f} MiB, planned {expected / MIB:,.0f}"
            within(f"the difference between {words},", abs(expected / taken - 1), MARGIN)
            yield words


def planned_bytes(one: LearnerSpec) -> int:
    """Return what the plan says that this learner takes at the peak of an update."""
    config = config_of(one)
    planned = Rank(config, RunModels.of(config, ConfigReader()))
    return total((*planned.state, *planned.update))


def free_bytes(device: str) -> float:
    """Return the free memory of the first GPU; on a CPU no model of a check is too large."""
    return torch.cuda.mem_get_info()[0] if device == "cuda" else float("inf")


def config_of(one: LearnerSpec) -> Config:
    """Return the configuration of a run on one GPU whose rank is this learner."""
    flags = {
        "model": str(one.model),
        "model.dtype": one.dtype,
        "model.max_context": str(TOKENS),
        "model.gradient_checkpointing": str(one.gradient_checkpointing).lower(),
        "max-tokens": "64",
        "engine.placement": "colocate",
        "learner.ranks": "1",
        "learner.zero_stage": "0",
        "learner.micro_batch_tokens": str(TOKENS),
    }
    return resolve_run(load(None, of_flags(flags.items())), replace(GPUS, gpus=GPUS.gpus[:1]))


def shaped(folder: Path, sizes: dict[str, int], device: str) -> Path:
    """Save a model of these sizes with random weights, made on the device, and its tokenizer; return its folder."""
    config = Qwen2Config(**sizes, max_position_embeddings=32_768, tie_word_embeddings=True)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder
