"""Options of vLLM and DeepSpeed that a run passes on are theirs, and none that a key of the run sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentrl.config.loading import load, of_flags
from agentrl.config.schema import EngineSection
from agentrl.config.toml import to_toml
from agentrl.engine.vllm import options as vllm
from agentrl.engine.vllm.settings import VllmSpec, engine_args
from agentrl.errors import ConfigError
from agentrl.learner import options as deepspeed

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_num_batched_token": 1}, "Did you mean 'max_num_batched_tokens'"),
        ({"max_num_seqs": 1}, "engine.max_num_seqs does: set that key instead"),
        ({"logprobs_mode": "raw_logprobs"}, "whose value agentrl needs"),
        ({"data_parallel_size": 2}, "whose value agentrl needs"),
    ],
)
def test_options_that_vllm_lacks_or_agentrl_sets_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        vllm.check_options(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reduce_bucket": 1}, "Did you mean 'reduce_bucket_size'"),
        ({"stage": 3}, "learner.zero_stage does: set that key instead"),
        ({"overlap_comm": "perhaps"}, "learner.deepspeed: overlap_comm: .* got 'perhaps'"),
        ({"offload_param": {"device": "nvme", "nvme_path": "/x"}}, "offload_param.device nvme, .*: set it to cpu"),
    ],
)
def test_options_that_deepspeed_lacks_or_agentrl_sets_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        deepspeed.check_options(options)


def test_kernels_of_deepspeed_that_need_a_gpu_are_refused_on_a_cpu() -> None:
    for name in deepspeed.CUDA:
        options = {name: {"topk_ratio": 0.1} if name == "zenflow" else True}
        deepspeed.check_options(options, "cuda")
        with pytest.raises(ConfigError, match=f"sets {name}, whose kernels need a GPU: leave it out"):
            deepspeed.check_options(options, "cpu")
    deepspeed.check_options({"zero_quantized_weights": False}, "cpu")


def test_options_of_deepspeed_that_have_no_effect_at_the_stage_are_refused() -> None:
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    values = {"offload_param": {"device": "cpu"}, "zero_hpz_partition_size": 2}
    assert {*deepspeed.STAGE_3} <= {*DeepSpeedZeroConfig.model_fields}
    for name in deepspeed.STAGE_3:
        options = {name: values.get(name, True)}
        deepspeed.check_options(options, stage=3, ranks=4)
        with pytest.raises(ConfigError, match=f"sets {name}, which has an effect at"):
            deepspeed.check_options(options, stage=1, ranks=4)
    deepspeed.check_options({"reduce_bucket_size": 1}, stage=0, ranks=3)
    with pytest.raises(ConfigError, match=r"zero_hpz_partition_size 3, which does not divide learner\.ranks 8"):
        deepspeed.check_options({"zero_hpz_partition_size": 3}, stage=3, ranks=8)


def test_every_option_that_agentrl_sets_is_one_of_vllm_s() -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs

    names = {*vllm.KEYS, *vllm.OURS}
    assert names <= set(AsyncEngineArgs.__dataclass_fields__)


def test_options_of_vllm_reach_it_from_flags_and_files(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[engine.vllm]\nstream_interval = 2\nmax_num_batched_tokens = 4096\n")
    config = load(file, of_flags([("engine.vllm.max_num_batched_tokens", "16384")]))
    assert config.engine.vllm == {"stream_interval": 2, "max_num_batched_tokens": 16384}
    again = tmp_path / "again.toml"
    again.write_text(to_toml(config))
    assert load(again).engine.vllm == config.engine.vllm
    vllm.check_options(config.engine.vllm)
    spec = VllmSpec("m", config.engine, "float32", 256, 0, "shm", "cpu", "", config.lora)
    assert engine_args(spec).max_num_batched_tokens == 16384


def test_an_engine_of_several_gpus_divides_its_layers_as_it_is_set() -> None:
    engine = EngineSection(tensor_parallel=2, pipeline_parallel=3, kv_cache_gib=1.0)
    args = engine_args(VllmSpec("m", engine))
    assert (args.tensor_parallel_size, args.pipeline_parallel_size) == (2, 3)
