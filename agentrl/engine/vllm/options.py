"""Options of vLLM's own that a run passes on, checked before an engine starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from agentrl.config.keys import ABSENT
from agentrl.config.passed import check_passed
from agentrl.errors import ConfigError

KEYS = {
    "model": "model.name",
    "dtype": "model.dtype",
    "max_model_len": "model.max_context",
    "max_num_seqs": "engine.max_num_seqs",
    "tensor_parallel_size": "engine.tensor_parallel",
    "pipeline_parallel_size": "engine.pipeline_parallel",
    "enforce_eager": "engine.enforce_eager",
    "enable_prefix_caching": "engine.prefix_caching",
    "gpu_memory_utilization": "engine.gpu_memory_utilization",
    "kv_cache_memory_bytes": "engine.kv_cache_gib",
    "seed": "seed",
    "enable_lora": "lora.publish",
    "max_lora_rank": "lora.rank",
    "lora_target_modules": "lora.targets",
}
"""Options that a key of the run sets."""
OURS = {
    "enable_sleep_mode",
    "logprobs_mode",
    "worker_extension_cls",
    "weight_transfer_config",
    "disable_log_stats",
    "max_loras",
    "nnodes",
    "node_rank",
    "data_parallel_size",
    "data_parallel_rank",
    "data_parallel_start_rank",
    "data_parallel_size_local",
    "data_parallel_address",
    "data_parallel_rpc_port",
    "data_parallel_hybrid_lb",
    "data_parallel_external_lb",
    "data_parallel_multi_port_external_lb",
    "data_parallel_backend",
    "prefill_context_parallel_size",
    "decode_context_parallel_size",
}
"""Options whose values the exchange of weights and tokens needs, and those of processes that agentrl places."""
EXPERT_PARALLEL = (
    "enable_expert_parallel",
    "enable_ep_weight_filter",
    "enable_eplb",
    "eplb_config",
    "enable_elastic_ep",
    "elastic_ep_max_dp_size",
    "expert_placement_strategy",
    "all2all_backend",
)
"""Options of engines whose GPUs have whole experts of a mixture, each some of them."""


def check_options(options: Mapping[str, Any]) -> None:
    """Raise ConfigError for an option that vLLM does not have, that agentrl sets, or that divides experts."""
    if not options:
        return
    if found := [name for name in EXPERT_PARALLEL if options.get(name)]:
        raise ConfigError(f"engine.vllm sets {found[0]}, and {ABSENT['expert_parallel']}")
    from vllm.engine.arg_utils import AsyncEngineArgs  # takes seconds

    known = {field.name for field in fields(AsyncEngineArgs)}
    check_passed("engine.vllm", options, "vLLM's AsyncEngineArgs", known, KEYS)
    for name in options:
        if name in OURS:
            raise ConfigError(f"engine.vllm sets {name}, whose value agentrl needs: leave it out")
