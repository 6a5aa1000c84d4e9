"""A plan sums what overlaps on a device, forgets no term, and has seconds that follow the hardware."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agentrl.config.machine import GIB
from agentrl.config.schema import LearnerSection, LoraSection
from agentrl.errors import ConfigError
from agentrl.planning import engine, ranks, trained_model
from agentrl.planning.duration import Load
from agentrl.planning.need import MARGIN, Fit, Item, Need, Phase
from agentrl.planning.plan import Plan
from agentrl.planning.ranks import Rank, width_of
from agentrl.planning.table import text_of
from agentrl.planning.trained_model import TrainedModel
from agentrl.reward_models.batcher import BatchLimits
from tests.unit.config.test_resolve import LAPTOP
from tests.unit.planning.published import gpus, plan, reward_shape, shape

SHARED = {"engine__placement": "colocate"}
APART = {"engine__placement": "separate"}


def need(plan: Plan, device: str, phase: Phase) -> Need:
    [found] = [need for need in plan.needs if (need.device, need.phase) == (device, phase)]
    return found


def items(need: Need) -> dict[str, int]:
    return {item.name: item.nbytes for item in need.items}


def test_roles_apart_have_devices_and_phases_of_their_own() -> None:
    apart = plan("Qwen2.5-0.5B", gpus(8), **APART)
    found = {(need.device, need.phase): need.count for need in apart.needs}
    assert found == {
        ("learner", Phase.START): 4,
        ("learner", Phase.UPDATE): 4,
        ("learner", Phase.PUBLICATION): 4,
        ("engine", Phase.SAMPLING): 4,
        ("engine's share", Phase.START): 4,
        ("CPU memory", Phase.START): 1,
    }


def test_an_engine_sleeps_while_the_learner_works_and_the_learner_stays_while_it_samples() -> None:
    shared = plan("Qwen2.5-0.5B", gpus(8), **SHARED)
    update, sampling = (need(shared, "learner + engine", phase) for phase in (Phase.UPDATE, Phase.SAMPLING))
    assert "engine's weights" not in items(update)
    assert items(update)["engine's CUDA context"] > 0
    alone = plan("Qwen2.5-0.5B", gpus(8), **APART, learner__ranks=4)
    assert sampling.nbytes > need(alone, "engine", Phase.SAMPLING).capacity * 0.45
    rank = Rank(shared.config, shared.models)
    assert items(sampling)["learner's state"] > sum(item.nbytes for item in rank.state)
    assert "optimizer" not in {item.name for item in rank.state}
    assert items(need(shared, "CPU memory", Phase.UPDATE))["offloaded optimizer"] == 8 * items(update)["optimizer"]


@pytest.mark.parametrize(
    ("flags", "device", "phase", "name"),
    [
        ({"algorithm__kl_coef": 0.1}, "learner", Phase.UPDATE, "frozen models"),
        ({"algo": "ppo"}, "learner", Phase.UPDATE, "critic"),
        ({"algorithm__kl_coef": 0.1, "scorers__placement": "separate"}, "scorers", Phase.SCORING, "frozen models"),
        ({"algo": "ppo", "critic__placement": "separate"}, "critic", Phase.UPDATE, "optimizer"),
        ({"learner__ema": 0.9}, "learner", Phase.UPDATE, "EMA"),
        ({"learner__zero_stage": 2, "learner__offload": "true"}, "CPU memory", Phase.UPDATE, "offloaded optimizer"),
        ({"lora__rank": 8}, "learner", Phase.PUBLICATION, "adapter"),
        ({"learner__zero_stage": 3}, "learner", Phase.PUBLICATION, "tensor"),
    ],
    ids=str,
)
def test_what_a_setting_adds_is_counted(flags: dict[str, Any], device: str, phase: Phase, name: str) -> None:
    assert items(need(plan("Qwen2.5-0.5B", gpus(8), **APART, **flags), device, phase))[name] > 0


def test_a_separate_critic_takes_its_memory_and_its_gpus_from_the_policys_ranks() -> None:
    apart: dict[str, Any] = {"critic__placement": "separate", "critic__ranks": 2, "critic__zero_stage": 2}
    ranks = {**APART, "algo": "ppo", "learner__ranks": 3, "engine__count": 3}
    separate = plan("Qwen2.5-0.5B", gpus(8), **ranks, **apart)
    assert {need.device: need.count for need in separate.needs} == {
        "learner": 3,
        "engine": 3,
        "engine's share": 3,
        "critic": 2,
        "CPU memory": 1,
    }
    assert "critic" not in items(need(separate, "learner", Phase.UPDATE))
    own, alone = need(separate, "critic", Phase.UPDATE), plan("Qwen2.5-0.5B", gpus(8), **ranks)
    assert 0 < items(own)["optimizer"] < items(need(separate, "learner", Phase.UPDATE))["optimizer"], "on two ranks"
    assert need(separate, "learner", Phase.UPDATE).nbytes < need(alone, "learner", Phase.UPDATE).nbytes
    assert items(need(separate, "CPU memory", Phase.START))["critic's loaded model"] > 0
    assert {one.phase for one in separate.seconds} >= {Phase.SCORING, Phase.UPDATE}
    assert separate.step_s < plan("Qwen2.5-0.5B", gpus(8), **ranks, **apart | {"critic__ranks": 1}).step_s


def test_on_cpus_a_separate_critic_is_a_process_more() -> None:
    together, apart = (
        need(plan("Qwen2.5-0.5B", LAPTOP, algo="ppo", critic__placement=place), "CPU memory", Phase.UPDATE)
        for place in ("colocate", "separate")
    )
    assert items(apart)["critic"] > 16 * 494e6
    assert items(apart)["learner"] < items(together)["learner"]
    assert items(apart)["processes"] > items(together)["processes"]


def test_models_that_play_roles_have_an_engine_each() -> None:
    roles = {"roles__judge__model": "Qwen2.5-7B"}
    assert need(plan("Qwen2.5-0.5B", gpus(8), **roles), "role engine", Phase.SAMPLING).nbytes > 14 * GIB


REWARD = {"reward__models": '[{name = "rm", model = "Qwen2.5-7B"}, {name = "small", model = "Qwen2.5-0.5B"}]'}


def test_a_reward_model_scores_with_its_own_shape() -> None:
    """A layer of the larger one keeps what a layer of a teacher of its shape does, of as many tokens as a batch has."""
    judged = plan("Qwen2.5-0.5B", gpus(8), **APART, **REWARD)
    teacher = TrainedModel(
        shape("Qwen2.5-7B"), LearnerSection(), LoraSection(), 2, 16_384, is_on_gpu=True, has_checkpointing=False
    )
    found = need(judged, "reward model", Phase.SAMPLING)
    assert BatchLimits().max_tokens == 16_384
    assert (found.count, found.capacity) == (2, 80 * GIB)
    assert items(found)["weights"] == 2 * reward_shape("Qwen2.5-7B").parameters
    assert items(found)["activations"] == trained_model.layer_bytes(teacher) * 16_384
    long = plan("Qwen2.5-0.5B", gpus(8), **APART, **REWARD, model__max_context=32_768)
    assert items(need(long, "reward model", Phase.SAMPLING))["activations"] == 2 * items(found)["activations"]


def test_a_reward_model_has_the_type_of_its_files_whatever_the_run_computes_in() -> None:
    in_float32 = plan("Qwen2.5-0.5B", gpus(8), **APART, **REWARD, model__dtype="float32")
    found = items(need(in_float32, "reward model", Phase.SAMPLING))
    assert found["weights"] == 2 * reward_shape("Qwen2.5-7B").parameters


def test_a_context_that_a_model_cannot_read_is_refused_by_its_role() -> None:
    with pytest.raises(ConfigError, match=r"is 40000, but the policy \(qwen2\) reads at most 32768 tokens: set model"):
        plan("Qwen2.5-0.5B", gpus(1), model__max_context=40_000)
    with pytest.raises(ConfigError, match=r"is 4096, but the critic \(opt\) reads at most 2048 tokens"):
        plan("Qwen2.5-0.5B", gpus(1), algo="ppo", critic__model="OPT-13B", model__max_context=4096)


def test_on_cpus_every_reward_model_scores() -> None:
    laptop = plan("Qwen2.5-0.5B", LAPTOP, reward__models='[{name = "rm", model = "Qwen2.5-0.5B"}]')
    found = items(need(laptop, "CPU memory", Phase.UPDATE))["reward models"]
    assert found > width_of(laptop.config) * 494e6 + GIB / 2


def test_a_reward_model_computes_on_one_of_its_gpus() -> None:
    two = plan("Qwen2.5-0.5B", gpus(8), **APART, **REWARD, reward__gpus=2, engine__count=2, learner__ranks=2)
    held, idle = (need(two, device, Phase.SAMPLING) for device in ("reward model", "reward model's idle GPU"))
    assert (held.count, held.capacity) == (idle.count, idle.capacity) == (2, 80 * GIB)
    assert idle.nbytes == 0
    assert "reward model's idle GPU x 2  sampling        0.0 of   80.0  fits" in text_of(two)
    shared = need(plan("Qwen2.5-0.5B", gpus(8), **APART, **REWARD, reward__gpus=0.5), "reward model", Phase.SAMPLING)
    assert (shared.count, shared.capacity) == (2, 40 * GIB)


@pytest.mark.parametrize(
    ("flags", "share"),
    [
        ({}, 0.9),
        ({"engine__gpu_memory_utilization": 0.3}, 0.9),  # beside a learner
        (APART | {"engine__gpu_memory_utilization": 0.88}, 0.88),
    ],
)
def test_the_engine_of_a_role_uses_the_gpu_that_it_has_alone(flags: dict[str, Any], share: float) -> None:
    judged = plan("Qwen2.5-0.5B", gpus(4), roles__judge__model="Qwen2.5-32B", **flags)
    assert need(judged, "role engine's share", Phase.START).capacity == int(share * 80 * GIB)
    assert judged.fit is Fit.FITS


def test_a_share_that_cannot_hold_the_engine_does_not_fit() -> None:
    cramped = plan("Qwen2.5-7B", gpus(2), **APART, lora__rank=16, engine__gpu_memory_utilization=0.1)
    assert [each.device for each in cramped.exceeding] == ["engine's share"]
    role = plan("Qwen2.5-0.5B", gpus(4, 60), roles__judge__model="Qwen2.5-32B")
    assert [each.device for each in role.exceeding] == ["role engine's share"]


def test_frozen_models_wait_in_cpu_memory_and_come_back_to_score() -> None:
    flags = {"algorithm__kl_coef": 0.1, "scorers__offload": "true"}
    offloaded = plan("Qwen2.5-0.5B", gpus(8), **APART, **flags)
    assert "frozen models" not in items(need(offloaded, "learner", Phase.UPDATE))
    assert items(need(offloaded, "learner", Phase.SCORING))["frozen models"] > 1.1 * GIB
    assert items(need(offloaded, "CPU memory", Phase.UPDATE))["offloaded frozen models"] > 0


def test_at_stage_3_the_ranks_divide_frozen_models_that_neither_move_nor_wait() -> None:
    def frozen(phase: Phase = Phase.UPDATE, **flags: Any) -> int:
        found = plan("Qwen2.5-0.5B", gpus(8), **APART, algorithm__kl_coef=0.1, learner__ranks=4, **flags)
        return items(need(found, "learner", phase))["frozen models"]

    whole, waiting = frozen(learner__zero_stage=2), {"scorers__offload": "true"}
    assert frozen(learner__zero_stage=3) == -(-whole // 4)
    assert frozen(Phase.SCORING, learner__zero_stage=3, **waiting) == whole
    assert frozen(learner__zero_stage=3, algorithm__reference_every=2) > whole


def test_parameters_of_every_model_of_a_rank_are_in_cpu_memory_and_on_cpus_nothing_changes() -> None:
    flags = {"algo": "ppo", "algorithm__kl_coef": 0.1, "learner__ranks": 4, "learner__zero_stage": 3}
    moved = {"learner__deepspeed__offload_param__device": "cpu"}
    here, away = (plan("Qwen2.5-7B", gpus(8), **APART, **flags, **more) for more in ({}, moved))
    kept, left = (need(each, "learner", Phase.UPDATE) for each in (here, away))
    assert {"parameters", "frozen models"} & {*items(left)} == set()
    assert items(kept)["critic"] - items(left)["critic"] == 4 * -(-reward_shape("Qwen2.5-7B").parameters // 4)
    assert need(away, "learner", Phase.START).nbytes < need(here, "learner", Phase.START).nbytes / 2
    host = items(need(away, "CPU memory", Phase.UPDATE))
    assert host["offloaded parameters"] == 4 * 2 * 8 * GIB, "of policy and critic, rounded up"
    assert host["offloaded frozen models"] == 4 * items(kept)["frozen models"]
    assert 1 < host["pinned by loading"] / (4 * items(kept)["parameters"]) < 2, "of one model after the other"
    separate = plan("Qwen2.5-7B", gpus(12), **APART, **flags, **moved, critic__placement="separate")
    assert items(need(separate, "CPU memory", Phase.UPDATE))["critic's offloaded parameters"] == 4 * 8 * GIB
    laptops = (plan("Qwen2.5-0.5B", LAPTOP, learner__zero_stage=3, **more).needs for more in ({}, moved))
    assert len({*map(tuple, laptops)}) == 1


@pytest.mark.parametrize(("placement", "device"), [("separate", "scorers"), ("colocate", "learner")])
def test_a_teacher_scores_with_a_head_of_its_own(placement: str, device: str) -> None:
    flags = {"algo": "distillation", "algorithm__teacher": "Qwen2.5-7B", "scorers__placement": placement}
    small = plan("Qwen2.5-0.5B", gpus(8), **APART, **flags)
    large = plan("Qwen2.5-7B", gpus(8), **APART, **flags | {"algorithm__teacher": "Qwen2.5-0.5B"})
    heads = [items(need(each, device, Phase.SCORING))["head"] for each in (small, large)]
    [teacher], [pupil] = small.models.frozen, large.models.frozen
    assert heads[0] - heads[1] == 2 * (teacher.embedding - pupil.embedding)  # in bfloat16


def nothing(*_: object, **__: object) -> Item:
    return Item("", 0)


@pytest.mark.parametrize(
    ("module", "term"),
    [(trained_model, name) for name in ("weights", "gradients", "optimizer", "average", "buckets")]
    + [(trained_model, name) for name in ("activations", "casts", "gathered", "head")]
    + [(engine, "cache")],
    ids=lambda value: value if isinstance(value, str) else value.__name__.rpartition(".")[2],
)
def test_a_term_that_is_forgotten_is_missed(module: Any, term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def peaks() -> list[int]:
        flags = {"learner__ema": 0.9, "learner__ranks": 4, "engine__count": 4}
        plans = [plan("Qwen2.5-7B", gpus(8), **APART, **flags, learner__zero_stage=stage) for stage in (1, 3)]
        return [sum(need.nbytes for need in each.needs if need.device != "CPU memory") for each in plans]

    before = peaks()
    monkeypatch.setattr(module, term, nothing)
    assert sum(before) - sum(peaks()) > GIB


def test_the_memory_of_a_cpu_machine_counts_every_process_and_every_model() -> None:
    laptop = plan("Qwen2.5-0.5B", LAPTOP)
    whole = need(laptop, "CPU memory", Phase.UPDATE)
    assert whole.capacity == 24 * GIB
    assert items(whole)["engines"] > 2 * 494e6 + laptop.config.engine.kv_cache_gib * GIB
    assert items(whole)["learner"] > 16 * 494e6
    doubled = plan("Qwen2.5-0.5B", LAPTOP, learner__ranks=2)
    assert items(doubled.needs[0])["learner"] > 1.9 * items(whole)["learner"]


@pytest.mark.parametrize(("nbytes", "fit"), [(95, Fit.FITS), (96, Fit.TIGHT), (114, Fit.TIGHT), (116, Fit.EXCEEDS)])
def test_only_what_exceeds_a_device_by_more_than_the_estimate_may_be_off_does_not_fit(nbytes: int, fit: Fit) -> None:
    assert MARGIN == 0.15
    assert Need("GPU", 1, Phase.UPDATE, (Item("x", nbytes),), 100).fit is fit


def test_ranks_that_share_micro_batches_divide_the_activations_of_the_longest_sequence() -> None:
    flags = {"learner__ranks": 4, "engine__count": 4, "model__max_context": 32768, **APART}
    alone, shared = (
        items(need(plan("Llama-3.1-8B", gpus(8), **flags, learner__sequence_parallel=ranks), "learner", Phase.UPDATE))
        for ranks in (1, 4)
    )
    assert shared["activations"] / alone["activations"] == pytest.approx(0.25, rel=0.05)
    assert shared["parameters"] == alone["parameters"]


def test_heads_that_ranks_cannot_divide_are_refused_before_a_run() -> None:
    flags = {"learner__ranks": 3, "learner__sequence_parallel": 3, "engine__count": 1, **APART}
    with pytest.raises(ConfigError, match=r"the policy \(qwen2\) has 28 attention heads and 4 key/value heads"):
        plan("Qwen2.5-7B", gpus(4), **flags)


def test_ranks_that_share_matrices_divide_what_is_not_an_embedding_a_norm_or_the_head() -> None:
    """Llama 3.1 8B: 6,979,321,856 parameters in the matrices of its layers, of 8,030,261,248."""
    flags = {"learner__ranks": 8, "engine__count": 8, "learner__zero_stage": 2, **APART}
    alone, shared = (plan("Llama-3.1-8B", gpus(16), **flags, learner__tensor_parallel=ranks) for ranks in (1, 4))
    one, part = (items(need(each, "learner", Phase.UPDATE)) for each in (alone, shared))
    own = 8_030_261_248 - 6_979_321_856 * 3 / 4
    assert part["parameters"] == 4 * own
    assert part["gradients"] == pytest.approx(4 * own / 2, rel=1e-6)  # two ranks have the same part
    assert part["optimizer"] == pytest.approx(12 * own / 2, rel=1e-6)
    assert one["activations"] / 4 < part["activations"] < one["activations"]
    both = (items(need(each, "CPU memory", Phase.START))["loaded model"] for each in (alone, shared))
    assert len({*both}) == 1  # a rank loads all, and then leaves the others their parts
    assert items(need(shared, "learner", Phase.PUBLICATION))["tensor"] > 0


def test_matrices_that_ranks_cannot_divide_are_refused_before_a_run() -> None:
    flags = {"learner__ranks": 8, "learner__tensor_parallel": 8, "engine__count": 1, **APART}
    with pytest.raises(ConfigError, match=r"learner.tensor_parallel 8: the policy \(qwen2\) .* Possible are 1, 2, 4"):
        plan("Qwen2.5-7B", gpus(9), **flags)


def test_an_engine_that_the_gpus_cannot_divide_is_refused_before_a_run() -> None:
    named = r"engine.tensor_parallel 8: the policy \(qwen2\) has 28 attention heads .* Possible are 1, 2, 4, 28"
    with pytest.raises(ConfigError, match=named):
        plan("Qwen2.5-7B", gpus(8), engine__tensor_parallel=8)
    stages = {"engine__pipeline_parallel": 30, "engine__count": 1, "learner__ranks": 30}
    with pytest.raises(ConfigError, match=r"engine.pipeline_parallel 30: .* has 24 layers, .* Possible are 1 to 24"):
        plan("Qwen2.5-0.5B", gpus(64), **stages)


def test_adapters_on_layers_that_the_model_lacks_are_refused_before_a_run() -> None:
    with pytest.raises(ConfigError, match=r"no linear layer 'q_porj'.* Did you mean 'q_proj'\?"):
        plan("Qwen2.5-7B", gpus(2), lora__rank=16, lora__targets="k_proj,q_porj")
    with pytest.raises(ConfigError, match=r"no linear layer 'mlp.q_proj'"):
        plan("Qwen2.5-7B", gpus(2), lora__rank=16, lora__targets="mlp.q_proj")
    for targets in ("all-linear", "q_proj, v_proj", "self_attn.q_proj"):
        assert plan("Qwen2.5-7B", gpus(2), lora__rank=16, lora__targets=targets).published


def test_adapters_are_counted_on_the_layers_that_a_name_with_modules_names() -> None:
    shape = plan("Qwen2.5-7B", gpus(2)).models.policy
    every, first = shape.adapters(16, ["self_attn.q_proj"]), shape.adapters(16, ["layers.0.self_attn.q_proj"])
    assert every == shape.adapters(16, ["q_proj"]) == shape.layers * first > 0


@pytest.mark.parametrize("outside", ["lm_head", "embed_tokens", "model.embed_tokens"])
@pytest.mark.parametrize("others", ["", "q_proj,"])
def test_adapters_on_the_head_or_the_embedding_are_refused_before_a_run(outside: str, others: str) -> None:
    named = f"no linear layer '{outside}', and nothing else gets adapters, neither the head nor"
    with pytest.raises(ConfigError, match=named):
        plan("Qwen2.5-0.5B", gpus(2), lora__rank=16, lora__targets=others + outside)


@pytest.mark.parametrize(
    ("flags", "fields", "refusal"),
    [
        ({"learner__sequence_parallel": 2}, {"rotary": ("default", "dynamic")}, "rotary embeddings of type dynamic"),
        (
            {"learner__tensor_parallel": 2},
            {"styles": ("colwise", "moe_tp_experts")},
            "divides layers by moe_tp_experts",
        ),
        ({"learner__tensor_parallel": 2}, {"styles": ()}, "does not exist"),
    ],
)
def test_what_ranks_cannot_share_of_a_model_is_refused_before_any_starts(
    flags: dict[str, Any], fields: dict[str, Any], refusal: str
) -> None:
    found = plan("Qwen2.5-0.5B", gpus(8), **flags)
    assert (found.models.policy.rotary, found.models.policy.styles) == (
        ("default",),
        ("colwise", "embedding_rowwise", "rowwise"),
    )
    models = replace(found.models, policy=replace(found.models.policy, **fields))
    with pytest.raises(ConfigError, match=refusal):
        replace(found, models=models)


@pytest.mark.parametrize("role", ["policy", "critic", "frozen"])
def test_a_model_that_the_learner_cannot_pack_is_refused_unless_it_only_answers(role: str) -> None:
    found = plan("Qwen2.5-0.5B", gpus(8), algo="ppo", algorithm__kl_coef=0.01)
    shape = replace(found.models.policy, kind="jamba", unpackable="it carries a state")
    models = replace(found.models, **{role: (shape,) if role == "frozen" else shape})
    with pytest.raises(
        ConfigError, match=r"\(jamba\) has an architecture agentrl does not train yet: it carries a state"
    ):
        replace(found, models=models)
    replace(found, models=replace(models, learns=False))


def test_engines_of_adapters_that_sleep_take_cpu_memory() -> None:
    shared = plan("Qwen2.5-7B", gpus(8), **SHARED, lora__rank=16)
    for phase in (Phase.START, Phase.UPDATE):
        assert items(need(shared, "CPU memory", phase))["engine's weights"] == 8 * 2 * shared.models.policy.parameters
    assert not any(
        "engine" in item.name for item in need(plan("Qwen2.5-7B", gpus(8), **SHARED), "CPU memory", Phase.START).items
    )


def test_one_of_several_machines_may_have_a_rank_on_every_gpu() -> None:
    """Ray packs bundles, those of engines first: 8 engines on one machine, 8 ranks on the other."""
    packed = plan("Qwen2.5-7B", gpus(8, nodes=2), **APART, learner__ranks=8, engine__count=8)
    start = need(packed, "CPU memory", Phase.START)
    assert start.count == 2
    assert items(start)["loaded model"] == 8 * 4 * packed.models.policy.parameters
    shared = plan("Qwen2.5-7B", gpus(8, nodes=2), **SHARED, learner__ranks=10, engine__count=10, lora__rank=8)
    assert (
        items(need(shared, "CPU memory", Phase.UPDATE))["engine's weights"] == 8 * 2 * shared.models.policy.parameters
    )


def test_one_of_several_machines_may_have_a_rank_of_the_critic_on_every_gpu() -> None:
    critic = {"critic__placement": "separate", "critic__model": "Qwen2.5-7B", "critic__ranks": 8}
    packed = plan("Qwen2.5-0.5B", gpus(8, nodes=2), **APART, algo="ppo", **critic, learner__ranks=4, engine__count=4)
    assert packed.models.critic
    start = items(need(packed, "CPU memory", Phase.START))
    assert start["critic's loaded model"] == 8 * 4 * packed.models.critic.parameters
    assert "loaded model" not in start


# --- seconds ------------------------------------------------------------------------------------------------------


def seconds(found: Plan, phase: Phase) -> float:
    return sum(one.seconds for one in found.seconds if one.phase is phase)


def test_a_batch_goes_through_the_learner_at_six_operations_for_each_parameter_and_token() -> None:
    """Kaplan et al. 2020: C = 6 N D, here on 4 GPUs of 989 TFLOP/s x 0.35; attention is a small part."""
    large = plan("Qwen2.5-7B", gpus(8), prompts=64, max_tokens=768, **APART)
    load = Load.of(large.config, large.prompt_tokens)
    assert (load.sequences, load.prompt, load.response) == (512, 256, 768)
    assert load.learned == 64 * 256 + 512 * 768
    expected = 6 * 7.62e9 * load.learned / 4 / (989e12 * 0.35)
    assert seconds(large, Phase.UPDATE) == pytest.approx(expected, rel=0.1)


def test_checkpointing_costs_a_third_and_more_gpus_take_less() -> None:
    flags = {"prompts": 64, **APART}
    plain = seconds(plan("Qwen2.5-7B", gpus(8), **flags), Phase.UPDATE)
    again = seconds(plan("Qwen2.5-7B", gpus(8), **flags, model__gradient_checkpointing="true"), Phase.UPDATE)
    assert again / plain == pytest.approx(4 / 3, rel=0.05)
    assert seconds(plan("Qwen2.5-7B", gpus(16), **flags), Phase.UPDATE) < 0.6 * plain


def test_ranks_that_share_micro_batches_also_exchange_their_heads() -> None:
    """Queries and results of 4096, keys and values of 1024 numbers in 16 bits, in 32 layers, forward and backward."""
    flags = {"prompts": 64, "learner__ranks": 4, "engine__count": 4, **APART}
    alone, shared = (plan("Llama-3.1-8B", gpus(8), **flags, learner__sequence_parallel=ranks) for ranks in (1, 4))
    tokens = Load.of(alone.config, alone.prompt_tokens).learned
    sent = 2 * 2 * (2 * 4096 + 2 * 1024) * 32 * tokens / 4 * 3 / 4
    more = seconds(shared, Phase.UPDATE) - seconds(alone, Phase.UPDATE)
    assert more == pytest.approx(sent / alone.hardware.link_rate(4), rel=0.01)


def test_ranks_that_share_matrices_compute_their_parts_and_add_up_hidden_states() -> None:
    """States of 4096 numbers, twice in 16 bits and five times in float32, in 32 layers; logits on every rank."""
    flags = {"prompts": 64, "learner__ranks": 4, "engine__count": 4, **APART}
    alone, shared = (plan("Llama-3.1-8B", gpus(8), **flags, learner__tensor_parallel=ranks) for ranks in (1, 4))
    tokens = Load.of(alone.config, alone.prompt_tokens).learned
    sent = 2 * (2 * 2 + 5 * 4) * 4096 * 32 * tokens * 3 / 4
    more = seconds(shared, Phase.UPDATE) - seconds(alone, Phase.UPDATE)
    logits = 6 * 1.05e9 * tokens * 3 / 4 / (989e12 * 0.35)
    assert more == pytest.approx(sent / alone.hardware.link_rate(4) + logits, rel=0.1)


def test_an_engine_reads_its_weights_for_every_token() -> None:
    """Bound by memory: 14.2 GiB of weights at 3.35 TB/s x 0.6, for each of 768 tokens."""
    few = plan("Qwen2.5-7B", gpus(2), prompts=1, max_tokens=768, **APART)
    assert seconds(few, Phase.SAMPLING) == pytest.approx(768 * 15.23e9 / (3.35e12 * 0.6), rel=0.05)
    split = plan("Qwen2.5-7B", gpus(4), prompts=1, max_tokens=768, engine__tensor_parallel=2, **APART)
    assert seconds(split, Phase.SAMPLING) < 0.75 * seconds(few, Phase.SAMPLING)


def test_a_faster_gpu_takes_less_time() -> None:
    times = [plan("Qwen2.5-7B", gpus(8, name=name), prompts=64).step_s for name in ("A100", "H100", "H200", "B200")]
    assert times == sorted(times, reverse=True)


def test_sampling_during_updates_hides_the_shorter_of_the_two() -> None:
    flags = {"prompts": 64, "learner__ranks": 4, "engine__count": 4}
    waits, overlaps = (plan("Qwen2.5-7B", gpus(8), **flags, rollout__max_staleness=age) for age in (0, 1))
    shorter = min(seconds(waits, Phase.SAMPLING), seconds(waits, Phase.UPDATE))
    assert waits.step_s - overlaps.step_s == pytest.approx(shorter)


def test_no_seconds_are_made_up_for_cpus() -> None:
    assert plan("Qwen2.5-0.5B", LAPTOP).seconds == ()


def test_the_peak_of_a_rank_is_no_less_than_any_of_its_parts() -> None:
    parts: list[Callable[[Rank], tuple[Item, ...]]] = [lambda rank: rank.state, lambda rank: rank.update]
    shared = plan("Qwen2.5-0.5B", gpus(8), algo="ppo")
    rank = Rank(shared.config, shared.models)
    assert all(part(rank) for part in parts)
    assert ranks.on_cpu(rank)[-1].nbytes > ranks.PROCESS
