"""Models by their published config.json, and machines to plan them on."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from agentrl.config.loading import load, of_flags
from agentrl.config.machine import Gpu, Machine, together
from agentrl.config.resolve import resolve_run
from agentrl.config.schema import Config
from agentrl.planning.hardware import Hardware
from agentrl.planning.meta import built_shape
from agentrl.planning.models import RunModels
from agentrl.planning.plan import Plan
from agentrl.planning.shape import ModelShape
from tests.unit.config.test_resolve import LAPTOP, STACK

QWEN = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "max_position_embeddings": 32768}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "max_position_embeddings": 131072}


def sizes(hidden: int, inner: int, layers: int, heads: int, kv_heads: int, vocabulary: int) -> dict[str, int]:
    return {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
    }


LATENT = {
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "tie_word_embeddings": False,
    "max_position_embeddings": 163840,
}
FALCON = {"architectures": ["FalconForCausalLM"], "model_type": "falcon", "vocab_size": 65024, "alibi": False}

CONFIGS: dict[str, dict[str, Any]] = {
    "Qwen2.5-0.5B": {**QWEN, **sizes(896, 4864, 24, 14, 2, 151936), "tie_word_embeddings": True},
    "Qwen2.5-7B": {**QWEN, **sizes(3584, 18944, 28, 28, 4, 152064), "tie_word_embeddings": False},
    "Qwen2.5-32B": {**QWEN, **sizes(5120, 27648, 64, 40, 8, 152064), "tie_word_embeddings": False},
    "Qwen3-32B": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        **sizes(5120, 25600, 64, 64, 8, 151936),
        "head_dim": 128,
        "tie_word_embeddings": False,
        "max_position_embeddings": 40960,
    },
    "Llama-3.1-8B": {**LLAMA, **sizes(4096, 14336, 32, 32, 8, 128256), "tie_word_embeddings": False},
    "Llama-3.1-70B": {**LLAMA, **sizes(8192, 28672, 80, 64, 8, 128256), "tie_word_embeddings": False},
    "LLaMA-65B": {**LLAMA, **sizes(8192, 22016, 80, 64, 64, 32000), "tie_word_embeddings": False},
    "OPT-13B": {
        "architectures": ["OPTForCausalLM"],
        "model_type": "opt",
        "hidden_size": 5120,
        "word_embed_proj_dim": 5120,
        "ffn_dim": 20480,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
    },
    "Qwen3-30B-A3B": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        **sizes(2048, 6144, 48, 32, 4, 151936),
        "head_dim": 128,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "decoder_sparse_step": 1,
        "norm_topk_prob": True,
        "tie_word_embeddings": False,
        "max_position_embeddings": 40960,
    },
    "DeepSeek-V2": {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        **sizes(5120, 12288, 60, 128, 128, 102400),
        **LATENT,
        "moe_intermediate_size": 1536,
        "n_routed_experts": 160,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
        "first_k_dense_replace": 1,
    },
    "DeepSeek-V3": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        **sizes(7168, 18432, 61, 128, 128, 129280),
        **LATENT,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 3,
    },
    "MiniCPM3-4B": {
        "architectures": ["MiniCPM3ForCausalLM"],
        "model_type": "minicpm3",
        **sizes(2560, 6400, 62, 40, 40, 73448),
        "q_lora_rank": 768,
        "kv_lora_rank": 256,
        "qk_rope_head_dim": 32,
        "qk_nope_head_dim": 64,
        "v_head_dim": 64,
        "tie_word_embeddings": True,
    },
    "Falcon-7B": {
        **FALCON,
        "hidden_size": 4544,
        "num_hidden_layers": 32,
        "num_attention_heads": 71,
        "multi_query": True,
    },
    "Falcon-40B": {
        **FALCON,
        "hidden_size": 8192,
        "num_hidden_layers": 60,
        "num_attention_heads": 128,
        "num_kv_heads": 8,
        "new_decoder_architecture": True,
        "multi_query": True,
    },
    "StarCoder": {
        "architectures": ["GPTBigCodeForCausalLM"],
        "model_type": "gpt_bigcode",
        "n_embd": 6144,
        "n_inner": 24576,
        "n_layer": 40,
        "n_head": 48,
        "multi_query": True,
        "vocab_size": 49152,
        "n_positions": 8192,
    },
}


def folder_of(name: str, parent: Path) -> Path:
    """A folder with nothing but the config.json of a model."""
    folder = parent / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIGS[name]))
    return folder


@cache
def shape(name: str) -> ModelShape:
    with tempfile.TemporaryDirectory() as parent:
        return built_shape(folder_of(name, Path(parent)))


@cache
def reward_shape(name: str) -> ModelShape:
    """The same model with a head of size 1, stored in bfloat16."""
    with tempfile.TemporaryDirectory() as parent:
        return dataclasses.replace(built_shape(folder_of(name, Path(parent)), is_reward=True), stored=2)


class Published:
    """Describes the models of `CONFIGS`; a reward model has the shape of the critic of its name."""

    def shape(self, name: str) -> ModelShape:
        return shape(name)

    def reward_shape(self, name: str) -> ModelShape:
        return reward_shape(name)


def gpus(count: int, gib: float = 80.0, name: str = "H100", nodes: int = 1) -> Machine:
    """Machines with the GPU stack; `count` GPUs in each."""
    packages = STACK | {"vllm": "0.32.0", "peft": "0.21.2", "bitsandbytes": "0.50.2"}
    host = dataclasses.replace(LAPTOP, gpus=(Gpu(name, gib),) * count, memory_gib=1024.0, packages=packages)
    return together((host,) * nodes) if nodes > 1 else host


def config(**flags: object) -> Config:
    """The configuration of flags: dots are written as two underscores."""
    return load(None, of_flags((key.replace("__", "."), str(value)) for key, value in flags.items()))


def plan(name: str, machine: Machine, **flags: object) -> Plan:
    """The plan of a model without any choice."""
    resolved = resolve_run(config(model=name, **flags), machine)
    return Plan(resolved, RunModels.of(resolved, Published()), Hardware.of(machine))
