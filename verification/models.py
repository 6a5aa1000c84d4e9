"""Models that are made on the spot: a machine with GPUs may have no network."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaConfig, LlamaForCausalLM

from tests.tiny import SPECIAL, tiny_model, tiny_tokenizer

SHARPER = 6.0
"""Factor of a new model's matrices. Otherwise its logits are nearly equal, and faults in attention would not show."""


def small(folder: Path, dtype: str = "float32", *, seed: int = 0, max_length: int = 1024) -> Path:
    """Save a model of 2 layers, whose predictions are sharp, with its tokenizer, and return its folder."""
    model = AutoModelForCausalLM.from_pretrained(tiny_model(folder, seed=seed, max_length=max_length))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(SHARPER)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    return folder


def deep(folder: Path) -> Path:
    """Save a model of 8 layers and 23M parameters, in which memory can be measured, and return its folder."""
    tokenizer = tiny_tokenizer()
    pad, begin, end = (tokenizer.convert_tokens_to_ids(name) for name in SPECIAL)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        bos_token_id=begin,
        eos_token_id=end,
        pad_token_id=pad,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig.from_model_config(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
