"""What was left to the machine is chosen so that the run fits; what cannot fit is refused with the nearest setting."""

from __future__ import annotations

import dataclasses
import re
import shlex
from contextlib import nullcontext
from pathlib import Path

import pytest

from agentrl.algorithms.configured import configured_algorithm
from agentrl.cli.flags import split
from agentrl.config.loading import Setting, load, of_flags, resumed
from agentrl.config.machine import Machine, together
from agentrl.config.resolve import resolve_run
from agentrl.config.schema import Config
from agentrl.config.toml import to_toml
from agentrl.errors import ConfigError
from agentrl.planning import fit, needs, remedy
from agentrl.planning import shape as shape_module
from agentrl.planning.fit import fitted_run
from agentrl.planning.hardware import Hardware
from agentrl.planning.meta import ConfigReader
from agentrl.planning.models import RunModels
from agentrl.planning.need import Fit, Phase
from agentrl.planning.plan import Plan
from agentrl.planning.remedy import MOST_CHOSEN, Remedy, fastest, is_set, remedies
from agentrl.planning.shape import ModelShape
from agentrl.planning.table import text_of
from agentrl.records.folder import RunFolder
from agentrl.training import launch
from tests.unit.config.test_resolve import LAPTOP
from tests.unit.planning.published import Published, config, folder_of, gpus, plan, shape


@pytest.fixture(autouse=True)
def _published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "ConfigReader", lambda may_download: Published())


def rewards(model: str, count: int) -> str:
    """Reward models that the run serves, as a flag has them."""
    return "[" + ", ".join(f'{{name = "rm{index}", model = "{model}"}}' for index in range(count)) + "]"


def run(machine: Machine, **flags: object) -> Config:
    return fitted_run(config(**flags), machine)


@pytest.mark.parametrize(
    ("machine", "flags", "words"),
    [
        (gpus(8), {"model": "Llama-3.1-70B", "learner__ranks": 4, "learner__zero_stage": 0}, "learner"),
        (gpus(1), {"model": "Qwen2.5-7B", "learner__zero_stage": 0}, "learner + engine"),
        (LAPTOP, {"model": "Qwen2.5-7B"}, "CPU memory"),
    ],
    ids=["70B on 4 ranks", "7B on one GPU", "7B on a laptop"],
)
def test_what_cannot_fit_is_refused_with_the_device_and_its_needs(
    machine: Machine, flags: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        run(machine, **flags)
    message = str(caught.value)
    assert f"{words}: " in message
    assert "GiB, and the device has" in message
    assert "`agentrl plan` shows the arithmetic" in message


def test_7b_on_one_gpu_has_the_113_gib_of_state_that_it_is_refused_for() -> None:
    whole = plan("Qwen2.5-7B", gpus(1))
    update = next(need for need in whole.needs if need.phase.value == "update")
    names = ("parameters", "gradients", "optimizer")
    assert sum(item.nbytes for item in update.items if item.name in names) / 2**30 == pytest.approx(113.5, abs=0.1)


def test_nothing_said_uses_every_gpu() -> None:
    small = run(gpus(8), model="Qwen2.5-0.5B")
    assert (small.engine.placement, small.engine.count, small.learner.ranks) == ("colocate", 8, 8)
    assert (small.learner.zero_stage, small.model.gradient_checkpointing) == (0, False)
    large = run(gpus(8), model="Qwen2.5-7B")
    used = large.learner.ranks + large.engine.count * large.engine.tensor_parallel
    assert (8 if large.engine.placement == "colocate" else used) == 8
    assert large.learner.zero_stage


def test_what_is_chosen_fits_and_comes_back_equal(tmp_path: Path) -> None:
    chosen = run(gpus(8), model="Qwen2.5-7B")
    models = RunModels.of(chosen, Published())
    assert Plan(chosen, models, Hardware.of(gpus(8))).fit is Fit.FITS
    assert fitted_run(chosen, gpus(8)) == chosen
    (tmp_path / "run.toml").write_text(to_toml(chosen))
    assert fitted_run(load(tmp_path / "run.toml"), gpus(8)) == chosen


def test_what_the_user_sets_is_never_changed() -> None:
    flags = {"learner__zero_stage": 3, "learner__ranks": 4, "engine__placement": "colocate", "engine__count": 4}
    requested = config(model="Qwen2.5-7B", **flags)
    chosen = fastest(requested, gpus(4), plan("Qwen2.5-7B", gpus(4), **flags))
    assert chosen is not None
    assert {change.key for change in chosen.changes}.isdisjoint(key.replace("__", ".") for key in flags)
    assert len(chosen.changes) <= MOST_CHOSEN
    learner, engine = chosen.plan.config.learner, chosen.plan.config.engine
    assert (learner.zero_stage, learner.ranks, engine.placement, engine.count) == (3, 4, "colocate", 4)
    assert is_set(requested, "learner.zero_stage")
    assert not is_set(requested, "model.gradient_checkpointing")


@pytest.mark.parametrize(
    ("name", "machine", "flags"),
    [
        ("Qwen2.5-7B", gpus(8), {"learner__zero_stage": 0, "learner__ranks": 8}),
        ("Qwen2.5-7B", gpus(8), {"learner__ranks": 6, "engine__count": 2, "learner__zero_stage": 0}),
        ("Qwen2.5-0.5B", LAPTOP, {"learner__micro_batch_tokens": 65536}),
        ("Llama-3.1-70B", gpus(8, nodes=4), {"learner__ranks": 4}),
        ("Llama-3.1-70B", gpus(8, nodes=4), {"learner__ranks": 4, "learner__zero_stage": 0}),
        ("Llama-3.1-8B", gpus(8), {"model__max_context": 131072}),
    ],
)
def test_the_flags_of_a_remedy_give_a_run_that_fits(name: str, machine: Machine, flags: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="nearest setting that fits: ") as caught:
        run(machine, model=name, **flags)
    [line] = [line for line in str(caught.value).splitlines() if line.startswith("nearest")]
    _, pairs = split(shlex.split(line.partition(": ")[2]))
    assert pairs
    overridden = {key.replace("__", "."): str(value) for key, value in flags.items()} | dict(pairs)
    again = fitted_run(load(None, of_flags([("model", name), *overridden.items()])), machine)
    assert Plan(again, RunModels.of(again, Published()), Hardware.of(machine)).fit is Fit.FITS


def found_for(name: str, machine: Machine, **flags: object) -> tuple[Remedy, ...]:
    return remedies(config(model=name, **flags), machine, plan(name, machine, **flags))


def test_the_nearest_setting_changes_as_little_as_possible() -> None:
    """Two changes are enough where neither of them is."""
    flags = {"learner__ranks": 8, "engine__count": 8, "learner__zero_stage": 0, "learner__micro_batch_tokens": 16384}
    [found] = found_for("Qwen2.5-7B", gpus(8), **flags, engine__placement="colocate")
    assert len(found.changes) == 2
    for change in found.changes:
        alone = flags | {change.key.replace(".", "__"): str(change).split()[1]}
        assert plan("Qwen2.5-7B", gpus(8), engine__placement="colocate", **alone).fit is not Fit.FITS


def test_adapters_are_proposed_without_an_offload_that_they_leave_nothing_to_do() -> None:
    flags: dict[str, object] = {"scorers__offload": "true", "algorithm__kl_coef": 0.01}
    machine = dataclasses.replace(gpus(4, 141.0), memory_gib=512.0)
    [adapters, *_] = found_for("Qwen2.5-32B", machine, **flags)
    assert adapters.advice.startswith("adapters in place of all weights fit: --lora.rank 16 --scorers.offload false ")
    flags |= {change.key.replace(".", "__"): str(change).split()[1] for change in adapters.changes}
    assert plan("Qwen2.5-32B", machine, **flags).fit is Fit.FITS


def unequal(*counts: int, gib: float = 80.0) -> Machine:
    return together([gpus(count, gib) for count in counts])


def test_machines_of_unequal_gpus_are_counted_each_for_itself() -> None:
    """Two machines of 8 and of 2 GPUs are not two of 5."""
    flags = {"learner__ranks": 10, "engine__count": 10, "engine__placement": "colocate", "learner__zero_stage": 2}
    flags |= {"learner__offload": "true"}
    needs = plan("Qwen2.5-7B", unequal(8, 2), **flags).needs
    needs = tuple(need for need in needs if need.device.startswith("CPU") and need.phase is Phase.UPDATE)
    assert [(need.device, need.count) for need in needs] == [
        ("CPU memory beside 8 GPUs", 1),
        ("CPU memory beside 2 GPUs", 1),
    ]
    of_eight, of_two = (need.items[0] for need in needs)
    assert of_eight.name == "offloaded optimizer"
    assert of_eight.nbytes == 4 * of_two.nbytes
    [alike] = {need.device for need in plan("Qwen2.5-7B", gpus(8, nodes=2)).needs if need.device.startswith("CPU")}
    assert alike == "CPU memory"


def test_a_machine_too_small_for_an_engine_has_none_of_the_ranks_that_share_its_gpus() -> None:
    """Its memory keeps no run from starting."""
    small = dataclasses.replace(gpus(3), memory_gib=60.0)
    flags = {"engine__tensor_parallel": 4, "engine__placement": "colocate", "learner__zero_stage": 3}
    found = plan("Qwen2.5-7B", together([gpus(4), small]), **flags, learner__offload="true")
    assert found.config.learner.ranks == 4
    assert found.fit is Fit.FITS


def test_an_engine_may_be_split_over_the_gpus_of_the_largest_machine() -> None:
    chosen = fitted_run(config(model="Llama-3.1-70B"), unequal(8, 1, 1, gib=24.0), learns=False)
    assert chosen.engine.tensor_parallel == 8


def test_adapters_and_more_machines_are_proposed_only_where_no_setting_fits() -> None:
    [setting] = found_for("Qwen2.5-7B", gpus(1))
    assert setting.advice.startswith("nearest setting that fits: --")
    tight, adapters, _, machines = found_for("Qwen2.5-7B", gpus(1, 48))
    assert tight.advice.startswith("nearest setting: --learner.zero_stage 2 ")
    assert tight.advice.endswith(" --learner.offload true (tight: it may run out of memory)")
    assert adapters.advice.startswith("adapters in place of all weights fit: --lora.rank 16 ")
    assert machines.advice.startswith(f"on {machines.nodes} machines it fits with --")
    assert len(machines.plan.hardware.hosts) == machines.nodes


def test_parameters_in_cpu_memory_are_proposed_where_nothing_milder_fits() -> None:
    fixed = {"learner__ranks": 1, "engine__count": 1, "engine__placement": "colocate"}
    found = {remedy.flags: remedy for remedy in found_for("Qwen2.5-7B", gpus(1, 48))}
    [flags] = [flags for flags in found if "offload_param" in flags]
    start = "--learner.zero_stage 3 --learner.offload true --learner.deepspeed.offload_param.device cpu"
    assert flags.startswith(start)
    assert found[flags].advice.startswith(
        f"parameters and optimizer in CPU memory fit, and are sent in every pass: {start}"
    )
    assert len({change.key for change in found[flags].changes}) == len(found[flags].changes)
    _, pairs = split(shlex.split(flags))
    typed = {key.replace(".", "__"): value for key, value in pairs}
    assert plan("Qwen2.5-7B", gpus(1, 48), **fixed | typed).fit is Fit.FITS
    without = {key: value for key, value in typed.items() if "deepspeed" not in key}
    assert plan("Qwen2.5-7B", gpus(1, 48), **fixed | without).fit is Fit.EXCEEDS
    few = dataclasses.replace(gpus(1, 48), memory_gib=96.0)
    assert not [each for each in found_for("Qwen2.5-7B", few) if "offload_param" in each.flags]


def test_what_is_proposed_is_accepted_by_the_algorithm() -> None:
    """A critic at stage 3 cannot wait in CPU memory, and adapters have no reference that could."""
    flags = {"algorithm__name": "ppo", "scorers__offload": "true", "rollout__prompts": 2}
    for found in found_for("Qwen2.5-32B", gpus(16), **flags):
        assert configured_algorithm(found.plan.config)
    adapters, _, machines = found_for("Qwen2.5-7B", gpus(1, 40), algorithm__kl_coef=0.01)
    assert configured_algorithm(adapters.plan.config)
    assert configured_algorithm(machines.plan.config)
    assert "scorers.offload" not in adapters.flags
    assert adapters.plan.models == RunModels.of(adapters.plan.config, Published())


def test_adapters_are_proposed_where_a_word_placed_the_reference_that_they_do_without() -> None:
    requested, machine = config(model="Qwen2.5-7B", placement="separate", algorithm__kl_coef=0.01), gpus(3, 40)
    with pytest.raises(ConfigError, match=r"adapters in place of all weights fit: (--lora\.rank 16.*)") as caught:
        fitted_run(requested, machine)
    [line] = [line for line in str(caught.value).splitlines() if line.startswith("adapters")]
    _, pairs = split(shlex.split(line.partition(": ")[2]))
    flags = {"placement": "separate", "algorithm__kl_coef": 0.01}
    adapted = run(machine, model="Qwen2.5-7B", **flags, **{key.replace(".", "__"): value for key, value in pairs})
    assert (adapted.lora.rank, adapted.engine.placement, adapted.scorers.placement) == (16, "separate", None)
    fixed = {"scorers__placement": "separate", "algorithm__kl_coef": 0.01}
    with pytest.raises(ConfigError, match=r"adapters in place of all weights fit: --lora\.rank 16 ") as caught:
        run(machine, model="Qwen2.5-7B", **fixed)
    [line] = [line for line in str(caught.value).splitlines() if line.startswith("adapters")]
    _, pairs = split(shlex.split(line.partition(": ")[2]))
    adapted = run(machine, model="Qwen2.5-7B", **fixed | {key.replace(".", "__"): value for key, value in pairs})
    assert (adapted.lora.rank, adapted.scorers.placement) == (16, "colocate"), "adapters are refused beside the key"


def test_scorers_share_the_ranks_where_they_do_not_fit_alone() -> None:
    flags = {"algorithm__name": "distillation", "algorithm__teacher": "Llama-3.1-70B"}
    [found] = found_for("Qwen2.5-7B", gpus(8), **flags, scorers__placement="separate")
    assert "--scorers.placement colocate" in found.flags


def test_a_critic_gets_more_ranks() -> None:
    flags = {"algorithm__name": "ppo", "critic__model": "Qwen2.5-32B", "critic__placement": "separate"}
    [found] = found_for("Qwen2.5-0.5B", gpus(16), **flags, critic__ranks=1)
    assert "--critic.ranks" in found.flags


def test_four_open_keys_are_chosen_where_fewer_do_not_fit() -> None:
    machine = together((gpus(8),) * 4)
    fitting = run(machine, model="Llama-3.1-70B", rollout__max_staleness=2)
    assert (fitting.learner.zero_stage, fitting.engine.placement) == (3, "separate")


def test_the_processes_of_a_machine_are_counted_though_nothing_waits_in_its_memory() -> None:
    flags = {"lora__rank": 16, "lora__load_in_4bit": "true", "engine__count": 1, "engine__placement": "separate"}
    few, many = (plan("Qwen2.5-7B", gpus(8), **flags, rollout__workers=workers) for workers in (8, 10_000))
    assert (few.fit, many.fit) == (Fit.FITS, Fit.EXCEEDS)
    assert [need.device for need in many.exceeding] == ["CPU memory"]


def test_settings_that_the_algorithm_refuses_are_not_said_to_need_memory() -> None:
    with pytest.raises(ConfigError, match=r"grpo compares at least 2 episodes per task"):
        run(gpus(1, 24), model="Llama-3.1-70B", rollout__group_size=1, rollout__prompts=8)


def test_a_model_that_no_gpu_can_load_whole_is_sharded_while_it_loads() -> None:
    adapters, machines = found_for("Llama-3.1-70B", gpus(8))
    assert adapters.advice.startswith("adapters in place of all weights fit: --lora.rank 16 --learner.zero_stage 3 ")
    assert machines.advice.startswith("on 2 machines it fits with --learner.zero_stage 3 ")
    assert found_for("Llama-3.1-70B", gpus(8, 24)) == ()
    with pytest.raises(ConfigError, match="none of the settings that were tried fits: use GPUs with more memory"):
        run(gpus(8, 24), model="Llama-3.1-70B")


FIXED = {
    "model__gradient_checkpointing": "false",
    "learner__zero_stage": 0,
    "learner__ranks": 1,
    "learner__micro_batch_tokens": 4096,
    "engine__count": 1,
    "engine__tensor_parallel": 1,
    "engine__placement": "separate",
    "engine__gpu_memory_utilization": 0.9,
}


@pytest.mark.parametrize(("excess", "is_refused"), [(1.0, False), (1.1, False), (1.2, True)])
def test_nothing_is_refused_that_an_estimate_may_be_off_by(excess: float, is_refused: bool) -> None:
    whole = plan("Qwen2.5-0.5B", gpus(2), **FIXED)
    most = max(need.nbytes for need in whole.needs if need.device == "learner") / 2**30
    machine = gpus(2, most / excess + 0.001)
    with pytest.raises(ConfigError, match="learner: update needs") if is_refused else nullcontext():
        assert run(machine, model="Qwen2.5-0.5B", **FIXED).learner.zero_stage == 0


def test_a_model_that_cannot_be_counted_is_left_to_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unknown(Published):
        def shape(self, name: str) -> ModelShape:
            raise ConfigError("no such model")

    monkeypatch.setattr(fit, "ConfigReader", lambda may_download: Unknown())
    requested = config(model="owner/unknown")
    assert fitted_run(requested, gpus(8)) == resolve_run(requested, gpus(8))


def test_a_share_that_is_too_small_is_refused_with_the_key_that_sets_it() -> None:
    flags = {"engine__gpu_memory_utilization": 0.1, "engine__placement": "separate", "lora__rank": 16}
    named = r"engine's share: start needs 17\.\d GiB, and engine.gpu_memory_utilization 0.1 leaves the engine 8\.0 GiB"
    with pytest.raises(ConfigError, match=named) as caught:
        run(gpus(2), model="Qwen2.5-7B", **flags)
    assert "nearest setting that fits: --engine.gpu_memory_utilization 0.35" in str(caught.value)


def test_a_cache_that_cannot_hold_one_sequence_on_a_cpu_is_enlarged_unless_it_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """131,072 tokens of 12 KiB are 1.5 GiB, more than the 1 GiB that is chosen by the memory of this machine."""
    monkeypatch.setattr(Published, "shape", lambda _, name: dataclasses.replace(shape(name), context=131_072))
    machine, long = dataclasses.replace(LAPTOP, memory_gib=19.0), {"model__max_context": 131_072}
    enough = config(model="Qwen2.5-0.5B", **long)
    assert resolve_run(enough, machine, learns=False).engine.kv_cache_gib == 1
    assert fitted_run(enough, machine, learns=False).engine.kv_cache_gib == 2
    named = r"engine's KV cache: start needs 1\.5 GiB, and engine.kv_cache_gib 1 leaves the engine 1\.0 GiB"
    with pytest.raises(ConfigError, match=named) as caught:
        fitted_run(config(model="Qwen2.5-0.5B", engine__kv_cache_gib=1, **long), machine, learns=False)
    assert "nearest setting that fits: --engine.kv_cache_gib 2.0" in str(caught.value)


def test_an_evaluation_needs_only_its_engines() -> None:
    requested, machine = config(model="Qwen2.5-7B"), gpus(1, 45)
    assert fitted_run(requested, machine, learns=False).engine.count == 1
    with pytest.raises(ConfigError):
        fitted_run(requested, machine)


def test_a_small_machine_gets_smaller_micro_batches_by_itself() -> None:
    small = dataclasses.replace(LAPTOP, memory_gib=18.5)
    chosen = run(small, model="Qwen2.5-0.5B")
    assert chosen.learner.micro_batch_tokens < 2048 or chosen.model.gradient_checkpointing


TEACHER = {"algo": "distillation", "algorithm__teacher": "Qwen2.5-32B"}
CRITIC = {"algo": "ppo", "critic__placement": "separate", "critic__ranks": 1}


def laptops(count: int, gib: float) -> Machine:
    return together([dataclasses.replace(LAPTOP, name=str(n), memory_gib=gib) for n in range(count)])


@pytest.mark.parametrize(
    ("flags", "device"),
    [
        ({"model": "Qwen2.5-7B", "learner__ranks": 1}, "learner rank: update"),
        ({"model": "Qwen2.5-0.5B", "engine__kv_cache_gib": 64}, "engine: sampling"),
        ({"model": "Qwen2.5-0.5B", "reward__models": rewards("Qwen2.5-32B", 1)}, "reward model: sampling"),
        ({"model": "Qwen2.5-0.5B", **TEACHER, "scorers__placement": "separate"}, "scorers: scoring"),
        ({"model": "Qwen2.5-7B", **CRITIC, "learner__ranks": 4, "learner__zero_stage": 3}, "critic rank: update"),
    ],
)
def test_a_process_that_is_larger_than_every_machine_is_refused_on_any_number_of_them(
    flags: dict[str, object], device: str
) -> None:
    message = rf"(?m)^{device} needs \d+\.\d GiB, and the machine with the most memory has 32\.0 GiB \("
    with pytest.raises(ConfigError, match=message) as caught:
        run(laptops(64, 32.0), **flags)
    assert "CPU memory" not in str(caught.value), "all machines together have enough"
    one = plan(str(flags.pop("model")), laptops(1, 2048.0), **flags)
    assert {need.device for need in one.needs} == {"CPU memory", "engine's KV cache"}


def test_a_process_may_be_as_large_as_the_largest_machine() -> None:
    large = dataclasses.replace(LAPTOP, name="large", memory_gib=256.0)
    mixed = plan("Qwen2.5-7B", together([*laptops(8, 32.0).hosts, large]), learner__ranks=1)
    assert mixed.fit is Fit.FITS
    assert re.search(r"(?m)^learner rank +update +171\.\d of +256\.0  fits", text_of(mixed))


def test_the_embedded_model_is_counted_before_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("AGENTRL_CACHE", str(tmp_path / "cache"))
    assert ConfigReader(may_download=False).shape("").parameters == 134_515_008
    with pytest.raises(ConfigError, match="CPU memory: update needs"):
        fitted_run(config(), dataclasses.replace(LAPTOP, memory_gib=4.0), may_download=False)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["shapes"], "nothing is downloaded or converted"


def test_a_reward_model_of_any_architecture_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModelForSequenceClassification, DebertaV2Config

    monkeypatch.undo()
    monkeypatch.setenv("AGENTRL_CACHE", str(tmp_path / "cache"))
    described = DebertaV2Config(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, vocab_size=64, num_labels=1, num_attention_heads=4
    )
    model = AutoModelForSequenceClassification.from_config(described)
    model.save_pretrained(tmp_path / "rm")
    folders = {"policy": folder_of("Qwen2.5-0.5B", tmp_path), "rm": tmp_path / "rm"}
    requested = load(
        None,
        [
            Setting("model.name", str(folders["policy"]), "test"),
            Setting("reward.models", [{"name": "rm", "model": str(folders["rm"])}], "test"),
        ],
    )
    models = RunModels.of(resolve_run(requested, LAPTOP), ConfigReader())
    [shape] = models.rewards
    assert (shape.parameters, shape.hidden, shape.layers) == (model.num_parameters(), 64, 2)
    assert (shape.heads, shape.inner, shape.is_gated) == (4, 128, False)
    assert ConfigReader().reward_shape(str(folders["rm"])) == shape, "read again, from the cache"
    with pytest.raises(ConfigError, match="CPU memory: update needs"):
        fitted_run(requested, dataclasses.replace(LAPTOP, memory_gib=4.0))


def test_reward_models_are_counted_on_the_gpus_of_the_ranks_that_they_share() -> None:
    flags: dict[str, object] = {"engine__placement": "colocate", "engine__gpu_memory_utilization": 0.4}
    three = rewards("Qwen2.5-0.5B", 3)
    made = plan("Qwen2.5-7B", gpus(2), reward__models=three, reward__placement="colocate", **flags)
    shared = [need for need in made.needs if need.device == "learner + engine + reward models"]
    assert {need.phase for need in shared} == set(Phase) - {Phase.SCORING}
    assert {need.count for need in shared} == {2}
    [each] = {item.nbytes for need in shared for item in need.items if item.name == "reward models"}
    apart = plan(
        "Qwen2.5-7B", gpus(3), reward__models=rewards("Qwen2.5-0.5B", 1), engine__count=2, learner__ranks=2, **flags
    )
    [own] = [need for need in apart.needs if need.device == "reward model"]
    assert each == 2 * own.nbytes, "one of the two ranks has two of the three"
    assert "reward model" not in {need.device for need in made.needs}
    separate = plan("Qwen2.5-7B", gpus(4), reward__models=three, reward__placement="colocate", engine__count=2,
                    engine__placement="separate", learner__ranks=2)  # fmt: skip
    devices = {need.device for need in separate.needs}
    assert {"learner + reward models", "engine"} <= devices


def test_reward_models_that_do_not_fit_beside_ranks_get_gpus_of_their_own() -> None:
    flags: dict[str, object] = {"reward__models": rewards("Qwen2.5-32B", 1), "reward__placement": "colocate"}
    with pytest.raises(
        ConfigError, match=r"learner \+ engine \+ reward models: .*\n.*: --reward\.placement separate\n"
    ):
        run(gpus(2), model="Qwen2.5-0.5B", learner__ranks=1, engine__placement="colocate", **flags)


def test_the_plan_of_a_folder_is_read_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("AGENTRL_CACHE", str(tmp_path / "cache"))
    folder = folder_of("Qwen2.5-7B", tmp_path)
    with pytest.raises(ConfigError, match=r"learner \+ engine"):
        fitted_run(config(model=folder), gpus(1))


def test_a_search_matches_names_of_layers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def is_named(name: str, layer: str) -> bool:
        names.append(name)
        return name.endswith(layer)

    monkeypatch.setattr(shape_module, "is_named", is_named)
    flags = {"lora__rank": 16, "lora__targets": "k_proj,v_proj", "learner__zero_stage": 0}
    with pytest.raises(ConfigError, match="the device has"):
        run(gpus(2), model="Llama-3.1-70B", **flags)
    assert len(names) <= 2 * 7 * 80


def test_a_setting_that_exceeds_one_device_is_not_counted_on_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[object] = []
    monkeypatch.setattr(needs, "starting", lambda *arguments: counted.append(arguments))
    exceeding = plan("Llama-3.1-70B", gpus(1))
    assert not exceeding.fits
    assert not counted


def test_nothing_is_tried_for_a_model_that_no_engine_of_one_machine_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, requested = plan("Llama-3.1-70B", gpus(1)), config(model="Llama-3.1-70B")
    monkeypatch.setattr(remedy, "resolve_run", lambda *_, **__: pytest.fail("it tries a setting"))
    assert remedies(requested, gpus(1), whole) == ()


def resuming(folder: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine, config: Config) -> str:
    """Resume a run with this configuration on another machine, and return why that is refused."""
    run = RunFolder(folder)
    run.config.write_text(to_toml(config))
    run.ledger.touch()
    run.audit.touch()
    monkeypatch.setattr(launch, "hardware", lambda _: machine)
    with pytest.raises(ConfigError) as caught:
        launch.resume(folder)
    return str(caught.value)


def test_a_refused_resume_proposes_only_what_a_resume_may_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {"learner__zero_stage": 3, "learner__ranks": 2, "engine__count": 2, "engine__placement": "separate"}
    planned = run(gpus(5, 180.0), model="Qwen2.5-7B", **flags)
    with pytest.raises(ConfigError, match=r"nearest setting that fits: --learner\.offload true\n"):
        fitted_run(planned, gpus(5))
    message = resuming(tmp_path, monkeypatch, gpus(5), planned)
    [line] = [line for line in message.splitlines() if line.startswith("nearest setting that fits: ")]
    _, pairs = split(shlex.split(line.partition(": ")[2]))
    assert dict(pairs) == {"engine.count": "1", "learner.ranks": "4"}
    assert fitted_run(resumed(tmp_path, of_flags(pairs)), gpus(5)).learner.ranks == 4


def test_a_resume_on_more_smaller_gpus_gets_more_engines_and_ranks_that_share_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = run(gpus(8, 80.0), model="Qwen2.5-7B")
    assert (recorded.engine.placement, recorded.engine.count, recorded.learner.ranks) == ("colocate", 4, 8)
    smaller = gpus(8, 32.0, nodes=2)
    message = resuming(tmp_path, monkeypatch, smaller, recorded)
    flags = "--learner.zero_stage 3 --engine.count 8 --learner.ranks 16"
    assert f"\nnearest setting that fits: {flags}\n" in message
    _, pairs = split(shlex.split(flags))
    assert fitted_run(resumed(tmp_path, of_flags(pairs)), smaller).learner.ranks == 16


def test_a_resume_that_is_tight_is_proposed_before_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = run(gpus(8, 180.0), model="Qwen2.5-7B")
    *_, tight, machines, _ = resuming(tmp_path, monkeypatch, gpus(8, 60.0), recorded).splitlines()
    assert tight == "nearest setting: --learner.zero_stage 3 (tight: it may run out of memory)"
    assert machines.startswith("on 2 machines it fits with --learner.zero_stage 3 ")
    assert fitted_run(resumed(tmp_path, of_flags([("learner.zero_stage", "3")])), gpus(8, 60.0)).learner.stage == 3


def test_a_proposal_with_another_placement_sets_the_way_of_the_weights_free(tmp_path: Path) -> None:
    recorded = run(gpus(8, 80.0), model="Qwen2.5-7B")
    assert (recorded.engine.placement, recorded.weights.transfer) == ("colocate", "ipc")
    (tmp_path / "config.toml").write_text(to_toml(recorded))
    other, smaller = load(tmp_path / "config.toml"), gpus(8, 24.0, nodes=2)
    with pytest.raises(ConfigError) as caught:
        fitted_run(other, smaller)
    [line] = [line for line in str(caught.value).splitlines() if line.startswith("nearest setting that fits: ")]
    _, pairs = split(shlex.split(line.partition(": ")[2]))
    assert dict(pairs)["engine.placement"] == "separate"
    assert dict(pairs)["weights.transfer"] == "auto"
    assert fitted_run(load(tmp_path / "config.toml", of_flags(pairs)), smaller).weights.transfer == "nccl"


@pytest.mark.parametrize(
    ("machine", "flags", "more"),
    [
        (gpus(2), {}, ["on 4 machines it fits with --learner.zero_stage 3 --learner.ranks 4"]),
        (gpus(2, 24.0), {}, []),
        (dataclasses.replace(LAPTOP, memory_gib=32.0), {"device": "cpu"}, []),
    ],
)
def test_the_refusal_of_a_resume_that_no_change_helps_says_what_else_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine, flags: dict[str, object], more: list[str]
) -> None:
    large = gpus(2, 180.0) if machine.gpus else dataclasses.replace(LAPTOP, memory_gib=512.0)
    alone: dict[str, object] = {"engine__placement": "separate", "learner__zero_stage": 0, "learner__ranks": 1}
    planned = run(large, model="Qwen2.5-7B", **alone, **flags)
    *lines, last, _ = resuming(tmp_path, monkeypatch, machine, planned).splitlines()
    assert [line for line in lines if " needs " not in line] == more
    file = tmp_path / "config.toml"
    assert last == (
        "no setting that was tried and that a resume may change fits here: resume on more or larger machines, or "
        "start a new run from the newest checkpoint, with other settings: "
        f"`agentrl train --config {file} --model {tmp_path} --out OTHER`"
    )
