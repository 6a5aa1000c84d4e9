"""Options of vLLM and DeepSpeed that a run passes on are theirs, and none that a key of the run sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentrl.config.loading import load, of_flags
from agentrl.config.resolve import resolve_run
from agentrl.config.schema import EngineSection
from agentrl.config.toml import to_toml
from agentrl.engine.vllm import options as vllm
from agentrl.engine.vllm.settings import VllmSpec, engine_args
from agentrl.errors import ConfigError
from agentrl.learner import options as deepspeed
from agentrl.training.inputs import algorithm_of, check_learner_options
from tests.unit.planning.published import config, gpus

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_num_batched_token": 1}, "Did you mean 'max_num_batched_tokens'"),
        ({"max_num_seqs": 1}, "engine.max_num_seqs does: set that key instead"),
        ({"logprobs_mode": "raw_logprobs"}, "whose value agentrl needs"),
        ({"data_parallel_size": 2}, "whose value agentrl needs"),
        *(({name: True}, f"sets {name}, and agentrl has no expert parallelism: .*") for name in vllm.EXPERT_PARALLEL),
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
        ({"offload_param": {"device": "nvme", "nvme_path": "/x"}}, "offload_param.device nvme, .* its digest"),
        ({"offload_optimizer": {"device": "nvme"}}, "offload_optimizer.device nvme, and a checkpoint .* on NVMe: "),
        ({"offload_optimizer": {"device": "cpu"}}, "learner.offload does: set that key instead"),
        ({"cpu_offload_param": True}, "learner.deepspeed.offload_param does: set that key instead"),
        ({"zenflow": {"topk_ratio": 0.1}}, "agentrl has no ZenFlow: it leaves parts of gradients"),
    ],
)
def test_options_that_deepspeed_lacks_or_agentrl_sets_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        deepspeed.check_options(options)


def test_kernels_of_deepspeed_that_need_a_gpu_are_refused_on_a_cpu() -> None:
    for name in deepspeed.CUDA:
        options = {name: True}
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
        deepspeed.check_options(options, stage=3, ranks={"learner.ranks": 4})
        with pytest.raises(ConfigError, match=f"sets {name}, which has an effect at"):
            deepspeed.check_options(options, stage=1, ranks={"learner.ranks": 4})
    deepspeed.check_options({"reduce_bucket_size": 1}, stage=0, ranks={"learner.ranks": 3})
    with pytest.raises(ConfigError, match=r"zero_hpz_partition_size 3, which does not divide learner\.ranks 8"):
        deepspeed.check_options({"zero_hpz_partition_size": 3}, stage=3, ranks={"learner.ranks": 8})


def test_the_critic_has_the_options_of_the_learner() -> None:
    """At its own ZeRO stage and on its own ranks."""

    def check(**flags: object) -> None:
        checked = resolve_run(config(algo="ppo", critic__placement="separate", **flags), gpus(16))
        check_learner_options(checked, algorithm_of(checked))

    groups = {"learner__deepspeed__zero_hpz_partition_size": 2, "learner__ranks": 4, "critic__zero_stage": 3}
    check(**groups, critic__ranks=2)
    for stage in (1, 3):
        with pytest.raises(ConfigError, match=r"zero_hpz_partition_size 2, which does not divide critic\.ranks 3"):
            check(**groups, critic__ranks=3, learner__zero_stage=stage)
    with pytest.raises(ConfigError, match="has an effect at"):
        check(**groups | {"critic__zero_stage": 2}, critic__ranks=3)


def test_every_option_that_agentrl_sets_is_one_of_vllm_s() -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs

    names = {*vllm.KEYS, *vllm.OURS, *vllm.EXPERT_PARALLEL}
    assert names <= set(AsyncEngineArgs.__dataclass_fields__)


def test_options_of_vllm_reach_it_from_flags_and_files(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[engine.vllm]\nstream_interval = 2\nmax_num_batched_tokens = 4096\n")
    loaded = load(file, of_flags([("engine.vllm.max_num_batched_tokens", "16384")]))
    assert loaded.engine.vllm == {"stream_interval": 2, "max_num_batched_tokens": 16384}
    again = tmp_path / "again.toml"
    again.write_text(to_toml(loaded))
    assert load(again).engine.vllm == loaded.engine.vllm
    vllm.check_options(loaded.engine.vllm)
    spec = VllmSpec("m", loaded.engine, "float32", 256, 0, "shm", "cpu", "", loaded.lora)
    assert engine_args(spec).max_num_batched_tokens == 16384


def test_an_engine_of_several_gpus_divides_its_layers_as_it_is_set() -> None:
    engine = EngineSection(tensor_parallel=2, pipeline_parallel=3, kv_cache_gib=1.0)
    args = engine_args(VllmSpec("m", engine))
    assert (args.tensor_parallel_size, args.pipeline_parallel_size) == (2, 3)
