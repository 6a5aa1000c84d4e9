"""Memory of an engine, against published figures."""

from __future__ import annotations

from typing import Any

import pytest

from agentrl.config.machine import GIB
from agentrl.config.schema import EngineSection, LoraSection
from agentrl.planning.engine import ServedModel, asleep, awake, cache, fixed, kept_asleep, share, starting
from agentrl.planning.need import Fit, total
from tests.unit.planning.published import shape

GPU = 80 * GIB


def served(name: str, max_context: int = 1024, lora: LoraSection | None = None, **keys: Any) -> ServedModel:
    section = EngineSection(**{"count": 1, "tensor_parallel": 1, "gpu_memory_utilization": 0.9, **keys})
    return ServedModel(shape(name), section, lora or LoraSection(), 2, max_context, is_on_gpu=True)


def named(engine: ServedModel, name: str) -> int:
    return sum(item.nbytes for item in awake(engine, GPU) if item.name == name)


@pytest.mark.parametrize(
    ("name", "tokens", "gigabytes"),
    [
        ("Llama-3.1-8B", 1_000, 0.125),
        ("Llama-3.1-8B", 16_000, 1.95),
        ("Llama-3.1-8B", 128_000, 15.62),
        ("Llama-3.1-70B", 1_000, 0.313),
        ("Llama-3.1-70B", 16_000, 4.88),
        ("Llama-3.1-70B", 128_000, 39.06),
    ],
)
def test_the_kv_cache_is_that_of_hugging_face_s_table(name: str, tokens: int, gigabytes: float) -> None:
    """huggingface.co/blog/llama31, "Inference Memory Requirements"; a GB there is 1024^3 bytes."""
    assert served(name).kv_bytes * tokens / GIB == pytest.approx(gigabytes, rel=0.03)


def test_a_token_of_opt_13b_takes_800_kb() -> None:
    """Kwon et al. 2023, PagedAttention, section 3: 2 x 5120 x 40 x 2 bytes."""
    assert served("OPT-13B").kv_bytes == 800 * 1024


@pytest.mark.parametrize(("name", "gigabytes"), [("Llama-3.1-8B", 16), ("Llama-3.1-70B", 140)])
def test_weights_are_those_of_hugging_face_s_table(name: str, gigabytes: float) -> None:
    """huggingface.co/blog/llama31: FP16."""
    assert named(served(name), "weights") / 1e9 == pytest.approx(gigabytes, rel=0.01)


def test_tensor_parallel_splits_weights_and_heads_of_keys() -> None:
    one, four, sixteen = (served("Llama-3.1-70B", tensor_parallel=split) for split in (1, 4, 16))
    assert named(four, "weights") == named(one, "weights") // 4
    assert four.kv_bytes * 4 == one.kv_bytes
    assert sixteen.kv_bytes * 8 == one.kv_bytes  # 8 heads of keys: on 16 GPUs each has one


@pytest.mark.parametrize(("name", "elements"), [("DeepSeek-V2", 34_560), ("DeepSeek-V3", 35_136)])
def test_latent_attention_caches_one_vector_for_all_heads_on_every_gpu_of_a_layer(name: str, elements: int) -> None:
    """DeepSeek-AI 2024, DeepSeek-V2, section 2.1.4: (512 + 64) elements of a token in each layer."""
    one, eight = served(name), served(name, tensor_parallel=8)
    assert one.kv_bytes == eight.kv_bytes == 2 * elements
    halved = served(name, pipeline_parallel=2, tensor_parallel=8)
    assert halved.kv_bytes == 2 * 576 * -(-shape(name).layers // 2)


@pytest.mark.parametrize(
    ("name", "elements"),
    [("Falcon-7B", 2 * 32 * 64), ("Falcon-40B", 2 * 60 * 8 * 64), ("StarCoder", 2 * 40 * 128)],
)
def test_heads_that_share_keys_cache_them_once(name: str, elements: int) -> None:
    """Shazeer 2019, multi-query attention: one head of keys for all heads of queries; Falcon-40B has 8."""
    assert served(name).kv_bytes == 2 * elements


def test_latent_attention_whose_heads_an_engine_expands_caches_them_all() -> None:
    """vLLM's model of MiniCPM3: 40 heads of 64 + 32 elements."""
    assert served("MiniCPM3-4B").kv_bytes == 2 * 2 * 62 * 40 * 96


def test_the_cache_fills_the_engine_s_share_and_holds_at_least_one_sequence() -> None:
    engine = served("Qwen2.5-7B")
    assert total(awake(engine, GPU)) == share(engine, GPU) == int(0.9 * GPU)
    cramped = served("Qwen2.5-7B", max_context=32_768, gpu_memory_utilization=0.2)
    assert cache(cramped, GPU).nbytes == cramped.kv_bytes * 32_768
    assert total(awake(cramped, GPU)) > share(cramped, GPU)


def test_an_engine_that_sleeps_keeps_neither_weights_nor_cache() -> None:
    assert {item.name for item in asleep(served("Qwen2.5-7B"))} == {"CUDA graphs", "CUDA context"}
    assert {item.name for item in asleep(served("Qwen2.5-7B", enforce_eager=True))} == {"CUDA context"}


def test_an_engine_of_adapters_holds_two() -> None:
    lora = LoraSection(rank=16, publish="adapter")
    names = {item.name: item.nbytes for item in fixed(served("Qwen2.5-7B", lora=lora))}
    assert names["adapters"] == 2 * 2 * shape("Qwen2.5-7B").adapters(16)


def test_an_engine_starts_only_if_its_share_holds_the_model_and_one_sequence() -> None:
    """vLLM: "No available memory for the cache blocks"."""
    enough, cramped = (starting(served("Qwen2.5-7B", gpu_memory_utilization=u), "engine", 1, GPU) for u in (0.9, 0.1))
    assert (enough.fit, cramped.fit) == (Fit.FITS, Fit.EXCEEDS)
    assert cramped.capacity == int(0.1 * GPU)
    assert cramped.nbytes == enough.nbytes == total(fixed(served("Qwen2.5-7B"))) + 1024 * 56 * 1024


def test_an_engine_on_cpus_starts_only_if_its_cache_holds_one_sequence() -> None:
    section = EngineSection(count=1, tensor_parallel=1, kv_cache_gib=1)
    short, long = (
        starting(ServedModel(shape("Qwen2.5-7B"), section, LoraSection(), 2, context, is_on_gpu=False), "engine", 1, 0)
        for context in (1024, 32_768)
    )
    assert (short.fit, long.fit) == (Fit.FITS, Fit.EXCEEDS)
    assert (long.capacity, long.nbytes) == (GIB, 32_768 * 56 * 1024)


def test_an_engine_on_cpus_packs_its_embedding_and_its_head_beside_themselves() -> None:
    """vLLM's UnquantizedEmbeddingMethod, of the two modules even if they are tied; Qwen2.5-0.5B: 151,936 x 896."""
    section = EngineSection(count=1, tensor_parallel=1, kv_cache_gib=1)
    engine = ServedModel(shape("Qwen2.5-0.5B"), section, LoraSection(), 2, 1024, is_on_gpu=False)
    assert {item.name: item.nbytes for item in fixed(engine)}["packed vocabulary"] == 2 * 2 * 151_936 * 896
    assert "packed vocabulary" not in {item.name for item in fixed(served("Qwen2.5-0.5B"))}


def test_an_engine_of_adapters_keeps_its_weights_in_cpu_memory_while_it_sleeps() -> None:
    """vLLM's sleep mode: level 1 moves the weights to CPU memory, level 2 drops them."""
    adapters = served("Qwen2.5-7B", lora=LoraSection(rank=16, publish="adapter"), tensor_parallel=2)
    assert total(kept_asleep(adapters)) == 2 * shape("Qwen2.5-7B").parameters
    assert kept_asleep(served("Qwen2.5-7B", lora=LoraSection(rank=16, publish="merged"))) == ()
