"""Models that the learner's attention and head would compute wrongly are refused without weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    BloomConfig,
    Cohere2Config,
    CohereConfig,
    DeepseekV2Config,
    DeepseekV3Config,
    DogeConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    Glm4Config,
    GlmConfig,
    GPT2Config,
    GPTBigCodeConfig,
    GPTNeoXConfig,
    GptOssConfig,
    GraniteConfig,
    GraniteMoeHybridConfig,
    JetMoeConfig,
    LlamaConfig,
    MiniCPM3Config,
    MistralConfig,
    MixtralConfig,
    NanoChatConfig,
    NemotronConfig,
    Olmo2Config,
    OPTConfig,
    Phi3Config,
    PhiConfig,
    PhimoeConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    StableLmConfig,
    Starcoder2Config,
)

from agentrl.config.packing import unapplied, unpackable

SIZES: dict[str, Any] = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
TOKENS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SMALL: dict[str, Any] = {**SIZES, **TOKENS, "num_key_value_heads": 2, "intermediate_size": 32}
LATENT: dict[str, Any] = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8}
CHOSEN: dict[str, Any] = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
CAPS: dict[str, Any] = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
ATTENTION_ONLY: dict[str, Any] = {"layer_types": ["full_attention"] * 2, "mamba_n_heads": 4, "mamba_d_head": 16}

TRAINABLE = [
    CohereConfig(**SMALL, logit_scale=1.0),
    Cohere2Config(**SMALL, logit_scale=1.0),
    DeepseekV2Config(**SMALL, **LATENT, **CHOSEN, v_head_dim=16),
    DeepseekV3Config(**SMALL, **LATENT, **CHOSEN, v_head_dim=16),
    GemmaConfig(**SMALL, head_dim=16),
    Gemma2Config(**SMALL, **CAPS, head_dim=16),
    Gemma3TextConfig(**SMALL, head_dim=16),
    GlmConfig(**SMALL, head_dim=16),
    Glm4Config(**SMALL, head_dim=16),
    GPT2Config(**SIZES, **TOKENS),
    GPTBigCodeConfig(**SIZES, **TOKENS),
    GPTNeoXConfig(**SIZES, **TOKENS, intermediate_size=32),
    GraniteConfig(**SMALL, logits_scaling=1.0),
    GraniteMoeHybridConfig(**SMALL, **ATTENTION_ONLY),
    LlamaConfig(**SMALL),
    MiniCPM3Config(**SMALL, **LATENT, v_head_dim=16, dim_model_base=32),
    MistralConfig(**SMALL, sliding_window=100),
    MixtralConfig(**SMALL, num_local_experts=4),
    Olmo2Config(**SMALL),
    OPTConfig(**SIZES, **TOKENS, ffn_dim=32, word_embed_proj_dim=32),
    Phi3Config(**SMALL),
    Qwen2Config(**SMALL),
    Qwen2MoeConfig(**SMALL, num_experts=4),
    Qwen3Config(**SMALL, head_dim=16),
    Qwen3MoeConfig(**SMALL, head_dim=16, num_experts=4),
    Starcoder2Config(**SMALL),
]
SCALED = "depend on more than hidden states and a matrix: its logits are scaled or capped"
SIZED = "heads of its queries, keys and values differ in size (16, 16 and 8)"
ATTENTION = [
    (Gemma2Config(**SMALL, head_dim=16, final_logit_softcapping=None), "its attention depends on softcap"),
    (GptOssConfig(**SMALL, head_dim=16, num_local_experts=4), "its attention depends on s_aux"),
    (DeepseekV3Config(**SMALL, **LATENT, **CHOSEN, v_head_dim=8), SIZED),
    (StableLmConfig(**SMALL), "its layers do not pass `attention` on"),
    (NemotronConfig(**SMALL), "its layers do not pass `attention` on"),
    (PhimoeConfig(**SMALL, num_local_experts=4, sliding_window=100), "window of 100 tokens is part of its masks"),
]
LANGUAGE_MODELS = [
    *ATTENTION,
    (BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=2), "its attention cannot be exchanged"),
    (DeepseekV2Config(**SMALL, **LATENT, **CHOSEN, v_head_dim=8), SIZED),
    (DogeConfig(**SMALL), "its attention has a mask of its own"),
    (MiniCPM3Config(**SMALL, **LATENT, v_head_dim=8), SIZED),
    (CohereConfig(**SMALL), SCALED),
    (Cohere2Config(**SMALL), SCALED),
    (Gemma2Config(**SMALL, head_dim=16, attn_logit_softcapping=None), SCALED),
    (Gemma3TextConfig(**SMALL, head_dim=16, final_logit_softcapping=30.0), SCALED),
    (GraniteConfig(**SMALL, logits_scaling=8.0), SCALED),
    (MiniCPM3Config(**SMALL, **LATENT, v_head_dim=16, dim_model_base=16), "hidden states are changed before"),
    (NanoChatConfig(**SMALL), SCALED),
]


def name(value: Any) -> str:
    return str(getattr(value, "model_type", ""))


def why(config: Any, *, is_critic: bool = False) -> str:
    """Return why a model on the meta device is refused, as a policy or as a critic."""
    kind = AutoModelForSequenceClassification if is_critic else AutoModelForCausalLM
    with torch.device("meta"):
        model = kind.from_config(config)
    before = (model.config._attn_implementation, {id(module): vars(module).copy() for module in model.modules()})
    found = unpackable(model, (model.score if is_critic else model.get_output_embeddings()).weight)
    after = (model.config._attn_implementation, {id(module): vars(module).copy() for module in model.modules()})
    assert after == before, "the model is as it was"
    return found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("config", TRAINABLE, ids=name)
def test_a_model_that_the_learner_computes_as_it_is_is_accepted(config: Any, dtype: str) -> None:
    config.dtype = dtype
    assert why(config) == ""


@pytest.mark.parametrize(("config", "reason"), LANGUAGE_MODELS, ids=name)
def test_a_language_model_that_the_learner_would_compute_otherwise_is_refused(config: Any, reason: str) -> None:
    assert reason in why(config)


@pytest.mark.parametrize(("config", "reason"), ATTENTION, ids=name)
def test_a_critic_needs_an_attention_that_the_learner_computes(config: Any, reason: str) -> None:
    assert reason in why(config, is_critic=True)


CRITICS = [
    Gemma2Config(**SMALL, head_dim=16, attn_logit_softcapping=None),
    Gemma3TextConfig(**SMALL, head_dim=16, final_logit_softcapping=30.0),
    MiniCPM3Config(**SMALL, **LATENT, v_head_dim=16, dim_model_base=16),
    PhiConfig(**SIZES, **TOKENS, intermediate_size=32),
]


@pytest.mark.parametrize("config", CRITICS, ids=name)
def test_a_critic_has_a_head_of_its_own_and_what_a_language_model_adds_to_its_own_does_not_count(config: Any) -> None:
    assert "depend on more than hidden states and a matrix" in why(config)
    assert why(config, is_critic=True) == ""


def test_a_bias_of_a_critics_head_counts() -> None:
    with torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(LlamaConfig(**SMALL))
        model.score = torch.nn.Linear(32, 1)
    assert unpackable(model, model.score.weight).endswith("on score.bias")


def test_what_cannot_be_computed_on_the_meta_device_is_left_to_the_learner() -> None:
    """The experts of JetMoE are chosen by values."""
    assert why(JetMoeConfig(**SMALL, num_local_experts=4, kv_channels=16)) == ""


HEADS, MASK = torch.zeros(1, 2, 4, 16), torch.zeros(1, 1, 4, 4)
HARMLESS = {"position_ids": HEADS, "use_cache": False, "output_attentions": True, "is_causal": True, "s_aux": None}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (HARMLESS, ""),
        ({"softcap": 50.0}, "depends on softcap"),
        ({"s_aux": torch.zeros(2)}, "depends on s_aux"),
        ({"dropout": 0.1, "position_bias": MASK}, "depends on dropout, position_bias"),
        ({"dropout": 0.0, "softcap": None}, ""),
        ({"is_causal": False}, "depends on is_causal"),
    ],
)
def test_an_argument_of_an_attention_that_changes_its_result_is_named(arguments: dict[str, Any], reason: str) -> None:
    found = unapplied(HEADS, HEADS, HEADS, None, arguments)
    assert reason in found
    assert bool(reason) is bool(found)


def test_heads_of_another_size_and_masks_are_named() -> None:
    assert "differ in size (16, 16 and 8)" in unapplied(HEADS, HEADS, HEADS[..., :8], None, {})
    assert "a mask of its own" in unapplied(HEADS, HEADS, HEADS, MASK, {})
