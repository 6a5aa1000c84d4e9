"""A 2-layer Llama with a byte-level ChatML tokenizer, made on the spot; transformers, vLLM and the learner load it."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tiny_model(
    folder: Path, dtype: str = "float32", seed: int = 0, *, tie: bool = True, max_length: int = 512, kv_heads: int = 2
) -> Path:
    """Save model and tokenizer into `folder` and return it; the same arguments give the same bytes."""
    config = _config(tie=tie, max_length=max_length, num_key_value_heads=kv_heads)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig.from_model_config(config)
    return _saved(model.to(getattr(torch, dtype)), folder)


def tiny_reward_model(folder: Path, seed: int = 0, *, labels: int = 1, **options: Any) -> Path:
    """Save a 2-layer sequence-classification model and its tokenizer into `folder` and return it."""
    config = _config(num_labels=labels, **options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _saved(LlamaForSequenceClassification(config), folder)


def tiny_gemma2(folder: Path, **options: Any) -> None:
    """Save a 2-layer Gemma 2, whose soft caps packing does not know, into `folder`."""
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 16}
    config = Gemma2Config(**{**sizes, **options}, num_attention_heads=2, num_key_value_heads=1)
    Gemma2ForCausalLM(config).save_pretrained(folder)


def tiny_windowed(folder: Path, window: int) -> None:
    """Save a 2-layer Mistral, whose tokens see `window` tokens each, into `folder`."""
    sizes = {"vocab_size": 320, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    config = MistralConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, sliding_window=window)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        MistralForCausalLM(config).save_pretrained(folder)


def tiny_qwen3(folder: Path) -> None:
    """Save a 2-layer Qwen3, which normalises the queries and keys of each head, into `folder`."""
    sizes = {"vocab_size": 320, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 32}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(Qwen3Config(**sizes, num_attention_heads=4, num_key_value_heads=2))
    for name, values in model.named_parameters():
        if "_norm" in name:  # all ones at first, where a gradient that is not summed would show less
            values.data.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(len(name)))
    model.save_pretrained(folder)


def _saved(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def _config(*, tie: bool = True, max_length: int = 512, **options: Any) -> LlamaConfig:
    tokenizer = tiny_tokenizer()
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in SPECIAL}
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        head_dim=32,  # the smallest that vLLM's CPU attention knows
        max_position_embeddings=max_length,
        tie_word_embeddings=tie,
        bos_token_id=ids["<|im_start|>"],
        eos_token_id=ids["<|im_end|>"],
        **{"pad_token_id": ids["<|endoftext|>"], "num_key_value_heads": 2, **options},
    )


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Three special tokens, the 256 bytes and 61 merges of a space with what follows: 320 tokens, all decodable."""
    merges = [("Ġ", letter) for letter in (string.ascii_letters + string.digits)[:61]]
    words = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    vocab = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=SPECIAL[1],
        eos_token=SPECIAL[2],
        pad_token=SPECIAL[0],
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast
