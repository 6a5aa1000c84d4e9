"""The KV cache of a plan against vLLM's own count of heads, for every kind of attention that differs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoConfig
from vllm.config import ModelConfig
from vllm.transformers_utils.model_arch_config_convertor import (
    MODEL_ARCH_CONFIG_CONVERTORS,
    ModelArchConfigConvertorBase,
)

from agentrl.config.schema import EngineSection, LoraSection
from agentrl.planning.engine import ServedModel
from agentrl.planning.shape import BFLOAT16
from tests.unit.planning.published import CONFIGS, folder_of, shape

pytestmark = pytest.mark.real
APART = {"MiniCPM3-4B"}
"""vLLM's model pads its values to the width of its keys, of which `get_head_size` knows nothing."""


def cached(folder: Path, ranks: int) -> int:
    """Return the elements of a token in the cache of one GPU: vLLM's heads, of keys and values unless they are one."""
    config = AutoConfig.from_pretrained(folder)
    convertor = MODEL_ARCH_CONFIG_CONVERTORS.get(config.model_type, ModelArchConfigConvertorBase)
    found = convertor(config, config.get_text_config()).convert()
    model: Any = SimpleNamespace(use_mla=found.is_deepseek_mla, model_arch_config=found)
    parallel: Any = SimpleNamespace(tensor_parallel_size=ranks)
    heads = ModelConfig.get_num_kv_heads(model, parallel)
    of_layer = (1 if found.is_deepseek_mla else 2) * heads * found.head_size
    return int(found.total_num_hidden_layers * of_layer)


@pytest.mark.parametrize("ranks", [1, 8])
@pytest.mark.parametrize("name", sorted(CONFIGS.keys() - APART))
def test_a_token_takes_as_much_of_the_cache_as_vllm_says(name: str, ranks: int, tmp_path: Path) -> None:
    section = EngineSection(count=1, tensor_parallel=ranks)
    engine = ServedModel(shape(name), section, LoraSection(), BFLOAT16, 1024, is_on_gpu=True)
    assert engine.kv_bytes == BFLOAT16 * cached(folder_of(name, tmp_path), ranks)
