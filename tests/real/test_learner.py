"""The learner on real DeepSpeed ranks over gloo, with a tiny model in float32."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    MiniMaxConfig,
    MiniMaxForCausalLM,
)

from agentrl.algorithms import AlgorithmConfig, RunShape
from agentrl.cluster.ports import free_port
from agentrl.config.models import locate
from agentrl.config.schema import AlgorithmSection, CriticSection, LearnerSection, LoraSection, ScorersSection
from agentrl.learner import checkpoint
from agentrl.learner.batch import split_updates
from agentrl.learner.spec import LearnerSpec
from agentrl.learner.updates import update_order
from tests.real.learner_ranks import Job
from tests.real.rank_processes import run_ranks
from tests.tiny import tiny_gemma2, tiny_model
from tests.unit.learner.synthetic import (
    batch,
    plain_logprobs,
    plain_loss,
    plain_model,
    plain_value_loss,
    reward_model,
    with_values,
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]
DEADLINE_S = 200.0
ADAM = 3e-5  # of updates of 1e-3: Adam divides by the size of a gradient, and small ones are mostly rounding


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def spec(model: Path, algorithm: AlgorithmSection | None = None, **learner: Any) -> LearnerSpec:
    fields = {"lr": 1e-3, "schedule": "constant", "micro_batch_tokens": 64, "step_timeout_s": 60, **learner}
    section = LearnerSection.model_validate(fields)
    return LearnerSpec(model, 10, dtype="float32", learner=section, algorithm=algorithm or AlgorithmSection())


def run(scenario: str, folder: Path, *specs: LearnerSpec, ranks: int = 1) -> list[Any]:
    """What each rank brought back; None from one that died."""
    job = Job(scenario, specs, ranks, free_port(), folder)
    return run_ranks("tests.real.learner_ranks", job, folder, ranks, DEADLINE_S)


@pytest.mark.parametrize(
    ("section", "meter", "stages"),
    [
        (AlgorithmSection(kl_coef=0.1), "reference_kl", (0, 1, 2, 3)),
        (AlgorithmSection(name="gspo", correction="sequence_tis"), "importance_mean", (0, 3)),
    ],
    ids=["by token", "by sequence"],
)
def test_sharding_over_ranks_and_zero_stages_changes_neither_loss_nor_gradient_nor_weights(
    model: Path,
    tmp_path_factory: pytest.TempPathFactory,
    section: AlgorithmSection,
    meter: str,
    stages: tuple[int, ...],
):
    kinds = [*({"zero_stage": stage} for stage in stages), {"zero_stage": 0, "updates_per_batch": 2}]
    one = tmp_path_factory.mktemp("one")
    [alone] = run("train", one, *(spec(model, section, **kinds[n], micro_batch_tokens=4096) for n in (0, -1)))
    two = tmp_path_factory.mktemp("two")
    pair = run("train", two, *(spec(model, section, **kind) for kind in kinds), ranks=2)
    for rank, learners in enumerate(pair):
        for number, (kind, (reports, weights, logprobs)) in enumerate(zip(kinds, learners, strict=True)):
            straight, plain_weights, plain_logprobs = alone[int("updates_per_batch" in kind)]
            for got, expected, other in zip(reports, straight, pair[1 - rank][number][0], strict=True):
                for name in ("loss", "grad_norm", "lr"):
                    assert getattr(got, name) == pytest.approx(getattr(expected, name), abs=1e-5), (kind, name)
                assert got.meters == pytest.approx(expected.meters, abs=1e-5), kind
                assert {"entropy", "mismatch_kl", "importance_mean", meter} <= got.meters.keys()
                assert got.tokens + other.tokens == expected.tokens
                assert sorted(got.samples + other.samples) == sorted(expected.samples)
            for name, tensor in weights.items():
                torch.testing.assert_close(tensor, plain_weights[name], atol=ADAM, rtol=0)
            for got_row, expected_row in zip(logprobs, plain_logprobs, strict=True):
                assert got_row == pytest.approx(expected_row, abs=1e-5)
    assert [report.optimizer_steps for report in alone[1][0]] == [2, 2, 2]


def test_with_bfloat16_products_the_zero_stages_differ_by_no_more_than_its_rounding(model: Path, tmp_path: Path):
    """From stage 1 on, gradients of linear layers are added up between ranks in bfloat16, which keeps 8 bits."""
    kinds = [replace(spec(model, zero_stage=stage), dtype="bfloat16") for stage in (0, 1, 2, 3)]
    for learners in run("train", tmp_path, *kinds, ranks=2):
        (plain, *_), *others = learners
        for reports, *_ in others:
            for got, expected in zip(reports, plain, strict=True):
                assert got.loss == pytest.approx(expected.loss, abs=2**-10)
                assert got.grad_norm == pytest.approx(expected.grad_norm, rel=2**-8)


def test_checkpointing_changes_no_digit_on_two_ranks(model: Path, tmp_path: Path):
    plain = [spec(model, zero_stage=zero) for zero in (0, 3)]
    saving = [replace(each, gradient_checkpointing=True) for each in plain]
    for learners in run("train", tmp_path, *plain, *saving, ranks=2):
        digests = [[report.digest for report in reports] for reports, *_ in learners]
        assert digests[2:] == digests[:2]


def test_an_optimizer_in_cpu_memory_learns_the_same_on_two_ranks(model: Path, tmp_path: Path):
    """DeepSpeed then adds up the gradient norm by parameter, and clips by it: its last digit may differ."""
    kinds = [spec(model, zero_stage=zero, offload=offload) for offload in (False, True) for zero in (1, 2, 3)]
    for learners in run("train", tmp_path, *kinds, ranks=2):
        for (kept, weights, _), (moved, same, _) in zip(learners[:3], learners[3:], strict=True):
            for name in ("loss", "grad_norm"):
                expected = [getattr(report, name) for report in kept]
                assert [getattr(report, name) for report in moved] == pytest.approx(expected, rel=1e-6, abs=1e-6), name
            for name, tensor in weights.items():
                torch.testing.assert_close(same[name], tensor, atol=ADAM, rtol=0)


def test_no_rank_holds_a_whole_model_while_it_loads_at_zero_stage_3(model: Path, tmp_path: Path):
    rewards = reward_model(tmp_path / "rewards")
    plain = AutoModelForCausalLM.from_pretrained(model).state_dict()
    values = AutoModelForSequenceClassification.from_pretrained(rewards).state_dict()
    new_head = {**values, "score.weight": torch.zeros(1, 64)}
    kinds = [spec(folder, zero_stage=3) for folder in (model, rewards)]
    for of_rank in run("sharded", tmp_path, spec(model), *kinds, ranks=2):
        for (held, shards, loaded), expected in zip(of_rank, (plain, new_head, plain, values), strict=True):
            size = sum(tensor.numel() for tensor in loaded.values())
            assert (held, shards) == (0, -(-size // 2))
            assert all(torch.equal(tensor, expected[name.removeprefix("model.")]) for name, tensor in loaded.items())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_at_zero_stage_3_a_rank_holds_a_share_of_reference_and_teacher_and_no_score_differs(
    model: Path, tmp_path: Path, dtype: str
):
    judge = tiny_model(tmp_path / "teacher", seed=7)
    section = AlgorithmSection(name="distillation", kl_coef=0.1)
    whole, shared = (replace(spec(model, section, zero_stage=n), teacher=judge, dtype=dtype) for n in (0, 3))
    pair = run("sharded_scorers", tmp_path, whole, shared, ranks=2)
    for (held, scores, _), (share, sharded, after) in pair:
        assert held == 2 * sum(p.numel() for p in AutoModelForCausalLM.from_pretrained(model).parameters())
        assert held / 2 <= share < held / 2 + 100
        for column, rows in scores.items():
            assert all((row == sharded[column][index]).all() for index, row in rows.items())
            assert all((row == after[column][index]).all() for index, row in rows.items())


def test_packing_is_checked_on_layers_of_every_kind_of_a_model_that_no_rank_holds_whole(model: Path, tmp_path: Path):
    """The last layer of MiniMax is the only one of its kind here."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    caps = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    tiny_gemma2(good, num_hidden_layers=4, layer_types=["sliding_attention"] * 3 + ["full_attention"], **caps)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_local_experts": 2}
    kinds = ["full_attention"] * 3 + ["linear_attention"]
    MiniMaxForCausalLM(MiniMaxConfig(**sizes, **heads, layer_types=kinds, head_dim=16)).save_pretrained(bad)
    [results] = run("sharded", tmp_path, spec(model), *(spec(folder, zero_stage=3) for folder in (good, bad)))
    assert [held for held, *_ in results] == [0, 0, "refused", "refused"]
    assert all("layers of type linear_attention" in why for _, why, _ in results[2:])


def test_parameters_and_optimizer_in_cpu_memory_change_no_digit_and_go_on_exactly(
    model: Path, tmp_path_factory: pytest.TempPathFactory
):
    """`offload_param` of DeepSpeed's ZeRO stage 3, also where its state is saved and loaded."""
    plain = spec(model, zero_stage=3, schedule="cosine")
    moved = spec(model, zero_stage=3, schedule="cosine", deepspeed={"offload_param": {"device": "cpu"}})
    for (kept, weights, rows), (offloaded, same, same_rows) in run(
        "train", tmp_path_factory.mktemp("train"), plain, moved, ranks=2
    ):
        assert [report.digest for report in offloaded] == [report.digest for report in kept]
        assert all(torch.equal(same[name], tensor) for name, tensor in weights.items())
        assert same_rows == rows
    for straight, resumed, is_same, _ in run("resume", tmp_path_factory.mktemp("resume"), moved, plain, ranks=2):
        assert [report.digest for report in resumed] == [report.digest for report in straight]
        assert is_same


def test_groups_of_ranks_that_hold_copies_of_the_parameters_change_no_digit(model: Path, tmp_path: Path):
    """`zero_hpz_partition_size` of ZeRO++."""
    plain = spec(model, zero_stage=3)
    grouped = spec(model, zero_stage=3, deepspeed={"zero_hpz_partition_size": 2})
    for (kept, weights, _), (copied, same, _) in run("train", tmp_path, plain, grouped, ranks=2):
        assert [report.digest for report in copied] == [report.digest for report in kept]
        assert all(torch.equal(same[name], tensor) for name, tensor in weights.items())


@pytest.mark.parametrize("zero", [0, 3])
def test_one_micro_batch_is_on_the_device_while_the_next_is_packed(model: Path, tmp_path: Path, zero: int):
    """In updates, in scores, and where logprobs are computed."""
    kinds = [spec(model, AlgorithmSection(kl_coef=0.1), zero_stage=zero, micro_batch_tokens=n) for n in (4096, 64)]
    [[whole, divided]] = run("packs", tmp_path, *kinds)
    assert whole == [(1, 1)] * 3
    assert min(many for many, _ in divided) > 4
    assert [at_once for _, at_once in divided] == [2] * 3


@pytest.mark.parametrize("zero", range(4))
def test_optimizer_state_that_waits_in_cpu_memory_changes_no_digit(model: Path, tmp_path: Path, zero: int):
    plain = spec(model, zero_stage=zero)
    for (kept, weights, _), (offloaded, moved, _) in run(
        "train", tmp_path, plain, replace(plain, yields_gpus=True), ranks=2
    ):
        assert [report.digest for report in offloaded] == [report.digest for report in kept]
        assert all(torch.equal(moved[name], tensor) for name, tensor in weights.items())


def test_the_way_that_deepspeed_takes_on_gpus_takes_the_same_steps(
    model: Path, tmp_path_factory: pytest.TempPathFactory
):
    """With the calls that order streams, though nothing works beside the host here; optimizer state is offloaded."""
    kinds = [replace(spec(model, zero_stage=zero), yields_gpus=True) for zero in (1, 2, 3)]
    plain = run("train", tmp_path_factory.mktemp("plain"), *kinds, ranks=2)
    beside = run("beside", tmp_path_factory.mktemp("beside"), *kinds, ranks=2)
    for learners, others in zip(plain, beside, strict=True):
        assert [digests for digests, _ in others] == [[one.digest for one in reports] for reports, *_ in learners]
        assert all("stream" in calls for _, calls in others)
        assert {"wait_stream", "record_stream", "record"} <= set(others[-1][1])


def test_the_host_waits_for_no_micro_batch_before_it_packs_the_next(model: Path, tmp_path: Path):
    """For a reference, for an update, and where logprobs are computed; DeepSpeed waits at stage 3 for its streams."""
    kinds = [spec(model, AlgorithmSection(kl_coef=0.1), zero_stage=zero, micro_batch_tokens=64) for zero in range(4)]
    [every] = run("waits", tmp_path, *kinds)
    for zero, calls in enumerate(every):
        assert min(events.count("pack") for events in calls) >= 2
        waits = {"synchronize device", *(["synchronize"] if zero < 3 else [])}
        assert not waits & {event for events in calls for event in events}


def test_a_learner_leaves_cached_gpu_memory_to_engines_after_everything_that_it_does(model: Path, tmp_path: Path):
    own = spec(model, AlgorithmSection(name="ppo"))
    [[alone, shared]] = run("returned", tmp_path, own, replace(own, yields_gpus=True))
    assert not any("returned" in events for events in alone[1:])
    assert [events[-1] for events in shared] == ["returned"] * 4
    assert shared[1] == ["returned", "critic", "returned"], "the policy's optimizer too, before the critic learns"


def test_a_step_equals_plain_pytorch_with_adamw(model: Path, tmp_path: Path):
    [[(reports, weights, _)]] = run("train", tmp_path, spec(model))
    plain = plain_model(model)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0)
    for seed, report in enumerate(reports):
        loss = plain_loss(plain, batch(3, 4, seed), AlgorithmConfig())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        assert (report.loss, report.grad_norm) == pytest.approx((loss.item(), norm.item()), abs=1e-5)
    for name, tensor in plain.named_parameters():
        torch.testing.assert_close(weights[name], tensor.detach(), atol=ADAM, rtol=0)


def test_weight_decay_spares_the_same_parameters_at_every_zero_stage(model: Path, tmp_path: Path):
    kinds = [spec(model, zero_stage=zero, weight_decay=1.0) for zero in range(4)]
    [results] = run("train", tmp_path, *kinds)
    plain = plain_model(model)
    groups: dict[bool, list[torch.nn.Parameter]] = {True: [], False: []}
    for name, parameter in plain.named_parameters():
        groups["norm" in name or "embed" in name].append(parameter)
    spared = {"params": groups[True], "weight_decay": 0.0}
    optimizer = torch.optim.AdamW([{"params": groups[False]}, spared], lr=1e-3, betas=(0.9, 0.95), weight_decay=1.0)
    for seed, _ in enumerate(results[0][0]):
        plain_loss(plain, batch(3, 4, seed), AlgorithmConfig()).backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    for _, weights, _ in results:
        for name, tensor in plain.named_parameters():
            torch.testing.assert_close(weights[name], tensor.detach(), atol=ADAM, rtol=0)


def test_without_a_signal_nothing_moves_and_silent_sequences_still_count(model: Path, tmp_path: Path):
    [(report, is_same, (skipping, forwarding))] = run("silence", tmp_path, spec(model), spec(model))
    assert (report.optimizer_steps, report.skipped_steps, report.grad_norm) == (0, 1, 0.0)
    assert len(report.samples) == 12
    assert is_same
    assert (skipping.loss, skipping.grad_norm) == pytest.approx((forwarding.loss, forwarding.grad_norm), abs=1e-5)
    assert skipping.tokens == forwarding.tokens


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_gradient_that_is_not_finite_changes_no_weight_at_any_zero_stage(model: Path, tmp_path: Path, ranks: int):
    results = run("poison", tmp_path, *(spec(model, zero_stage=zero) for zero in range(4)), ranks=ranks)
    for of_rank in results:
        for zero, (reports, has_moved, is_same) in enumerate(of_rank):
            counts = [(r.optimizer_steps, r.nonfinite_steps, r.skipped_steps) for r in reports]
            assert counts == [(1, 0, 0), (0, 1, 0), (1, 0, 0)], zero
            assert not has_moved, zero
            assert is_same, zero  # the optimizer's moments are as if the bad batch had never been
            values = [value for r in reports for value in (r.loss, r.grad_norm, *r.meters.values())]
            assert all(map(math.isfinite, values)), zero
            assert not reports[1].has_learned


def test_no_checkpoint_is_written_from_weights_that_are_not_finite(model: Path, tmp_path: Path):
    for of_rank in run("spoiled", tmp_path, spec(model), spec(model, zero_stage=3), ranks=2):
        for said, files in of_rank:
            assert said.startswith("LearnerError")
            assert "not finite" in said
            assert files == []


def test_no_checkpoint_is_written_without_the_files_of_a_rank(model: Path, tmp_path: Path):
    (said, first), (_, other) = run("apart", tmp_path, spec(model, zero_stage=1), ranks=2)
    assert said.startswith("LearnerError")
    assert "lacks the files of learner rank 1" in said
    assert "file system that all machines of the cluster share" in said
    assert first == other == ["step-1.partial"]


def test_old_logprobs_are_computed_only_where_they_are_read(model: Path, tmp_path: Path):
    big = {"micro_batch_tokens": 4096}  # one micro-batch in each update
    [made] = run(
        "forward_passes",
        tmp_path,
        spec(model, **big),
        spec(model, updates_per_batch=2, **big),
        spec(model, AlgorithmSection(old_logprobs="sampler"), updates_per_batch=2, **big),
    )
    assert made == [0, 1, 0]


@pytest.mark.parametrize(("zero", "ranks"), [(0, 1), (2, 2)])
def test_a_loaded_checkpoint_goes_on_exactly_and_a_broken_one_says_so(
    model: Path, tmp_path: Path, zero: int, ranks: int
):
    one = spec(model, zero_stage=zero, schedule="cosine")
    results = run("resume", tmp_path, one, one, ranks=ranks)
    for straight, resumed, is_same, (missing, truncated, absent) in results:
        assert [(r.loss, r.grad_norm, r.lr) for r in straight] == [(r.loss, r.grad_norm, r.lr) for r in resumed]
        assert is_same
        assert missing.startswith("RunError")
        assert "nowhere" in missing
        assert truncated.startswith("RunError")
        assert "cannot be read" in truncated
        assert absent.startswith("RunError")
        assert "cannot be read: state: it has " in absent
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("step")] == ["step-000002"]


def test_a_checkpoint_goes_on_with_another_number_of_ranks_at_another_zero_stage(
    model: Path, tmp_path_factory: pytest.TempPathFactory
):
    one, two, again = (tmp_path_factory.mktemp(name) for name in ("one", "two", "again"))
    on_one = [with_critic(model, 0, 0), small_steps(model, optimizer="muon")]
    on_two = [
        with_critic(model, 3, 1),
        on_one[1],
        small_steps(model, zero_stage=1),
        small_steps(model, zero_stage=3),
        with_critic(model, 3, 2),
        small_steps(model, zero_stage=2, deepspeed={"round_robin_gradients": True}),
        replace(small_steps(model, zero_stage=2), lora=LoraSection(rank=4, alpha=8)),
    ]
    on_one_again = [on_one[0], small_steps(model), replace(small_steps(model), lora=on_two[6].lora)]
    saved_and_loaded = [
        *(((one, n), (two, n)) for n in range(2)),
        ((two, 2), (two, 3)),
        *(((two, 4 + n), (again, n)) for n in range(3)),
    ]
    for (source, saved), (target, loaded) in saved_and_loaded:
        (target / f"from-{loaded}").symlink_to(source / f"step-{saved}")
    results = {
        one: run("other_layout", one, *on_one),
        two: run("other_layout", two, *on_two, ranks=2),
        again: run("other_layout", again, *on_one_again),
    }
    for (source, saved), (target, loaded) in saved_and_loaded:
        assert_same_state(source / f"step-{saved}", target / f"step-{loaded}")
        straight, before, after = results[source][0][saved]
        bound = 5e-6 if loaded == 1 and source == one else 1e-6  # Muon rounds to bfloat16
        for resumed, start, end in (of_rank[loaded] for of_rank in results[target]):
            for name in ("loss", "grad_norm", "lr"):
                assert getattr(resumed, name) == pytest.approx(getattr(straight, name), abs=1e-6)
            assert_close(start, before, 0.0)
            assert_close(end, after, bound)
    assert [len(models) > 0 for models in results[one][0][0][1]] == [True, True, True]  # policy, EMA and critic


def small_steps(model: Path, algorithm: AlgorithmSection | None = None, **learner: Any) -> LearnerSpec:
    """A learner whose updates are of 1e-4. With weight decay its optimizer has two groups of parameters."""
    return spec(model, algorithm, lr=1e-4, schedule="cosine", weight_decay=0.1, **learner)


def with_critic(model: Path, zero: int, critic: int) -> LearnerSpec:
    """A learner with an EMA, and a critic at another ZeRO stage."""
    section = CriticSection(zero_stage=critic)
    return replace(small_steps(model, AlgorithmSection(name="ppo"), zero_stage=zero, ema=0.5), critic=section)


def assert_close(found: Sequence[dict[str, torch.Tensor]], expected: Sequence[dict[str, torch.Tensor]], bound: float):
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name, tensor in one.items():
            torch.testing.assert_close(tensor, other[name], atol=bound, rtol=0)


def assert_same_state(one: Path, other: Path) -> None:
    """Two checkpoints hold the same elements, to the last bit, in files of other layouts."""
    assert checkpoint.read_progress(one) == checkpoint.read_progress(other)
    for part in ("state", "critic"):
        saved, again = joined(one / part), joined(other / part)
        assert saved.keys() == again.keys()
        assert all(torch.equal(tensor, again[name]) for name, tensor in saved.items())


def joined(folder: Path) -> dict[str, torch.Tensor]:
    """The state in a folder by parameter and kind; shards in their order, each written once.

    Every rank that holds the beginning of a cut parameter writes its number of steps.
    """
    shards: dict[str, dict[int, torch.Tensor]] = defaultdict(dict)
    for path in folder.glob("rank-*.safetensors"):
        for key, tensor in load_file(path).items():
            name, kind, *start = key.split("/")
            parts, place = shards[f"{name}/{kind}"], int(start[0]) if start else 0
            if place in parts:
                assert not start, f"two ranks write {key}"
                assert torch.equal(parts[place], tensor.view(-1)), f"ranks write {key} that differ"
            parts[place] = tensor.view(-1)
    return {name: torch.cat([parts[start] for start in sorted(parts)]) for name, parts in shards.items()}


def test_what_is_staged_is_what_is_saved_under_checkpoint_names_and_loads_with_from_pretrained(
    model: Path, tmp_path: Path
):
    results = run("publish", tmp_path, spec(model, zero_stage=0), spec(model, zero_stage=3), ranks=2)
    assert results[1] == [None, None]
    for index, (staged, digests) in enumerate(results[0]):
        assert dict(staged) == digests
        folder = tmp_path / f"model-{index}" / checkpoint.MODEL
        saved = AutoModelForCausalLM.from_pretrained(folder)
        assert sorted(digests) == sorted(name for name, _ in saved.named_parameters())
        assert AutoTokenizer.from_pretrained(folder).decode([74, 75]) == "hi"
    assert results[0][0][1].keys() == results[0][1][1].keys()


def test_a_publication_gathers_each_parameter_once_and_holds_a_bucket_and_a_layer(model: Path, tmp_path: Path):
    small = replace(spec(model, zero_stage=3), bucket_bytes=1 << 16)
    results = run("gathering", tmp_path, small, replace(small, lora=LoraSection(rank=4, alpha=8)), ranks=2)
    plain = plain_model(model)
    names = [name for name, _ in plain.named_parameters()]
    embedding = plain.get_input_embeddings().weight.nbytes
    for rank, of_rank in enumerate(results):
        for gathered, _, _ in of_rank:
            assert len(gathered) >= len(names)
            assert set(gathered.values()) == {1}
        _, held, layer = of_rank[0]
        bucket = max(small.bucket_bytes, embedding)  # a larger tensor has a bucket to itself
        assert max(held) <= layer + (bucket if rank == 0 else embedding)


def test_a_moving_reference_is_the_policys_average_on_every_layout_and_goes_on_exactly(model: Path, tmp_path: Path):
    section = AlgorithmSection(kl_coef=0.1, reference_every=2, reference_ema=0.75)
    kinds = [spec(model, section, zero_stage=stage) for stage in (0, 3)]
    for of_rank in run("moving_reference", tmp_path, *kinds, ranks=2):
        for seen, is_resumed in of_rank:
            assert is_resumed
            (start, first), (_, after_1), (policy, after_2), (_, after_3) = seen
            for name, values in first.items():
                assert torch.equal(values, start[name])
                assert torch.equal(values, after_1[name])
                assert torch.equal(after_2[name], after_3[name])
                torch.testing.assert_close(after_2[name], 0.75 * values + 0.25 * policy[name], atol=1e-6, rtol=0)
            assert not torch.equal(start["model.norm.weight"], policy["model.norm.weight"])


def test_no_update_is_taken_once_the_policy_has_drifted(model: Path, tmp_path: Path):
    """The first update measures no drift, the second exceeds any limit: weights and moments are those of one update."""
    beyond = AlgorithmSection(kl_stop=1e-10)
    kinds = [
        replace(spec(model, section, zero_stage=zero, epochs=epochs), run=RunShape(updates=2))
        for zero in (0, 2, 3)
        for section, epochs in ((beyond, 2), (AlgorithmSection(), 1))
    ]
    stale = replace(
        spec(model, AlgorithmSection(kl_stop=1e-10, old_logprobs="sampler"), epochs=2), run=RunShape(updates=2)
    )
    within = replace(spec(model, AlgorithmSection(kl_stop=10.0), epochs=2), run=RunShape(updates=2))
    for of_rank in run("train", tmp_path, *kinds, within, stale, ranks=2):
        counts = [
            {(r.optimizer_steps, r.stopped_steps, r.nonfinite_steps) for r in reports} for reports, _, _ in of_rank
        ]
        assert counts == [{(1, 1, 0)}, {(1, 0, 0)}] * 3 + [{(2, 0, 0)}, {(1, 1, 0)}]
        assert all(r.meters["refused_kl"] > 1e-10 for reports, _, _ in (of_rank[0], of_rank[-1]) for r in reports)
        for (_, stopped, _), (_, once, _) in zip(of_rank[0:6:2], of_rank[1:6:2], strict=True):
            for name, values in once.items():
                torch.testing.assert_close(stopped[name], values, atol=ADAM, rtol=0)


def test_the_critic_is_the_same_on_every_layout_as_in_plain_pytorch_and_goes_on_exactly(
    model: Path, tmp_path_factory: pytest.TempPathFactory
):
    folder, one, two = (tmp_path_factory.mktemp(name) for name in ("critic", "one", "two"))
    reward_model(folder)
    twice = {"updates_per_batch": 2, "epochs": 2}
    layouts: list[tuple[int, int, dict[str, int]]] = [(0, 0, {}), (0, 2, twice), (3, 3, {})]
    kinds = [
        replace(
            spec(model, AlgorithmSection(name="ppo"), zero_stage=policy_zero, **keys),
            critic=CriticSection(lr=2e-3, zero_stage=critic_zero, warmup_steps=1),
            critic_model=folder,
        )
        for policy_zero, critic_zero, keys in layouts
    ]
    [alone] = run("critic", one, *kinds[:2])
    pair = run("critic", two, *kinds[1:], ranks=2)
    for results in (*zip(*pair, strict=True), *((result,) for result in alone)):
        for _, reports, is_kept, _, is_resumed in results:
            assert (is_kept, is_resumed) == (True, True)
            assert [(r.has_learned, r.skipped_steps, "value_loss" in r.meters) for r in reports] == [
                (False, 0, True),
                (True, 0, True),
            ]
    for of_rank in pair:
        for (_, _, keys), (_, reports, _, values, _) in zip(layouts[1:], of_rank, strict=True):
            _, straight, _, expected, _ = alone[int(keys == twice)]
            for got, wanted in zip(reports, straight, strict=True):
                assert got.meters == pytest.approx(wanted.meters, rel=1e-5, abs=1e-5)
                assert got.loss == pytest.approx(wanted.loss, abs=1e-5)
            for name, tensor in values.items():
                torch.testing.assert_close(tensor, expected[name], atol=2 * ADAM, rtol=0)
    starts = [{index: row for of_rank in pair for index, row in of_rank[n][0].items()} for n in range(2)]
    for start in starts:
        assert sorted(start) == list(range(12))
        assert all(start[n].tolist() == pytest.approx(alone[0][0][n].tolist(), abs=1e-5) for n in start)
    # Every part of a batch in every epoch, with the values of before the first update.
    for count, epochs, (_, reports, _, values, _) in zip((1, 2), (1, 2), alone, strict=True):
        plain = AutoModelForSequenceClassification.from_pretrained(folder)
        optimizer = torch.optim.AdamW(plain.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.0)
        for seed, report in enumerate(reports):
            parts = split_updates(with_values(batch(3, 4, seed), seed), count)
            steps = []
            for index in update_order(len(parts), epochs, first=seed * count * epochs):
                loss, share = plain_value_loss(plain, parts[index], 0.2)
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                steps.append([loss.item(), share, norm.item()])
            got = [report.meters[name] for name in ("value_loss", "value_clip_fraction", "critic_grad_norm")]
            assert count > 1 or got == pytest.approx(steps[0], rel=1e-5, abs=1e-5)
            assert got[2] == pytest.approx(sum(step[2] for step in steps) / len(steps), rel=1e-3)
            assert report.meters["critic_lr"] == 2e-3
        for name, tensor in plain.named_parameters():
            torch.testing.assert_close(values[name], tensor.detach(), atol=2 * ADAM, rtol=0)


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_critic_whose_optimizer_waits_in_cpu_memory_learns_the_same(model: Path, tmp_path: Path, stage: int):
    plain = replace(
        spec(model, AlgorithmSection(name="ppo")), critic=CriticSection(lr=2e-3, zero_stage=stage, warmup_steps=1)
    )
    [[straight, waiting]] = run("critic", tmp_path, plain, replace(plain, scorers=ScorersSection(offload=True)))
    (_, expected, _, weights, _), (_, reports, _, values, is_resumed) = straight, waiting
    assert is_resumed
    assert [(r.digest, r.meters) for r in reports] == [(r.digest, r.meters) for r in expected]
    assert all(torch.equal(tensor, weights[name]) for name, tensor in values.items())


def test_a_teachers_logprobs_are_its_own_at_the_sampling_temperature(model: Path, tmp_path: Path):
    folder = tiny_model(tmp_path / "teacher", seed=7)
    [rows] = run("teacher", tmp_path, replace(spec(model, AlgorithmSection(name="distillation")), teacher=folder))
    sequences = batch(temperature=0.6)
    with torch.no_grad():
        logprobs, mask = plain_logprobs(plain_model(folder), sequences)
    for index in range(len(sequences)):
        assert rows[index].tolist() == pytest.approx(logprobs[index][mask[index] == 1].tolist(), abs=1e-5)


def test_adapters_and_averages_are_the_same_on_every_layout_and_go_on_exactly(
    model: Path, tmp_path_factory: pytest.TempPathFactory
):
    lora = LoraSection(rank=4, alpha=8, publish="adapter")
    kinds = [replace(spec(model, zero_stage=zero, ema=0.5), lora=lora) for zero in (0, 3)]
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    [[(straight, _, plain_weights, plain_average, *_)]] = run("adapters", one, kinds[0])
    for of_rank in run("adapters", two, *kinds, ranks=2):
        for reports, is_base_kept, weights, average, is_reference_kept, is_resumed, staged in of_rank:
            assert (is_base_kept, is_reference_kept, is_resumed) == (True, True, True)
            for got, expected in zip(reports, straight, strict=True):
                assert (got.loss, got.grad_norm) == pytest.approx((expected.loss, expected.grad_norm), abs=1e-5)
            for name, tensor in weights.items():
                torch.testing.assert_close(tensor, plain_weights[name], atol=ADAM, rtol=0)
                torch.testing.assert_close(average[name], plain_average[name], atol=ADAM, rtol=0)
            for bucket in staged:
                assert len(bucket.tensors) == 2 * 7 * 2
                bucket.discard()
    plain_saved = saved_average(one / "step-0")
    for folder in two.glob("step-*"):
        assert {"model", "ema", "adapter", "state"} <= {path.name for path in folder.iterdir()}
        averaged = saved_average(folder)
        adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), folder / checkpoint.ADAPTER)
        saved = AutoModelForCausalLM.from_pretrained(folder / checkpoint.MODEL).state_dict()
        for name, tensor in adapted.merge_and_unload().state_dict().items():
            torch.testing.assert_close(tensor, saved[name], atol=1e-6, rtol=0)
        for name, tensor in averaged.items():
            torch.testing.assert_close(tensor, plain_saved[name], atol=ADAM, rtol=0)
        assert not all(torch.equal(tensor, saved[name]) for name, tensor in averaged.items())


def saved_average(folder: Path) -> dict[str, torch.Tensor]:
    """Read a checkpoint's average as `agentrl eval` and `agentrl train --model` find it."""
    average = locate(str(folder / checkpoint.EMA))
    weights: dict[str, torch.Tensor] = AutoModelForCausalLM.from_pretrained(average, dtype=torch.float32).state_dict()
    return weights


def test_adapters_over_4_bit_weights_learn_on_every_layout_and_go_on_exactly(model: Path, tmp_path: Path):
    pytest.importorskip("bitsandbytes", reason="needs agentrl-core[bitsandbytes]")
    lora = LoraSection(rank=4, alpha=8, load_in_4bit=True, publish="merged")
    kinds = [replace(spec(model, zero_stage=zero, ema=0.5), lora=lora) for zero in (0, 2)]
    ranks = run("adapters", tmp_path, *kinds, ranks=2)
    for (straight, *_, first), (sharded, *_, second) in ranks:
        assert [report.loss for report in sharded] == pytest.approx([r.loss for r in straight], abs=1e-5)
        assert all(report.grad_norm > 0 for report in straight)
        for bucket in (*first, *second):
            bucket.discard()
    for of_rank in ranks:
        for _, is_base_kept, weights, _, is_reference_kept, is_resumed, _ in of_rank:
            assert (is_base_kept, is_reference_kept, is_resumed) == (True, True, True)
            for name, tensor in weights.items():
                torch.testing.assert_close(tensor, ranks[0][0][2][name], atol=ADAM, rtol=0)
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "step-0" / checkpoint.MODEL, dtype=torch.float32)
    assert all(tensor.dtype == torch.float32 for tensor in saved.state_dict().values())


def test_a_moving_reference_over_4_bit_weights_starts_as_the_policy(model: Path, tmp_path: Path):
    pytest.importorskip("bitsandbytes", reason="needs agentrl-core[bitsandbytes]")
    lora = LoraSection(rank=4, alpha=8, load_in_4bit=True, publish="merged")
    section = AlgorithmSection(kl_coef=0.1, reference_every=5)
    [[(reports, *_)]] = run("train", tmp_path, replace(spec(model, section), lora=lora))
    kl = [report.meters["reference_kl"] for report in reports]
    assert kl[0] == pytest.approx(0.0, abs=1e-7)
    assert kl[-1] > 1e-6


def test_algorithms_of_each_kind_learn_a_bandit_and_two_runs_of_them_are_equal(model: Path, tmp_path: Path):
    names = ("grpo", "reinforce++", "rloo", "ppo")
    specs = [spec(model, AlgorithmSection(name=name), lr=3e-3) for name in names for _ in range(2)]
    [curves] = run("bandit", tmp_path, *specs)
    for index, name in enumerate(names):
        one, again = curves[2 * index : 2 * index + 2]
        assert one == again, name
        assert one[0] < 0.6, name
        assert one[-1] > 0.9, name


OUTSIDE = """
from agentrl.algorithms import Algorithm, AlgorithmConfig, Needs, minus_mean_of_others, returns_by_turn, spread

class Mine(Algorithm):
    needs = Needs(group_size=2)

    class Config(AlgorithmConfig):
        scale: float = 1.0

    def credit(self, groups):
        for samples in groups:
            spread(samples, {turn: minus_mean_of_others(row) for turn, row in returns_by_turn(samples).items()})

    def loss(self, terms):
        return -self.config.scale * terms.advantages * terms.logprobs
"""


def test_an_algorithm_from_a_file_trains_with_its_own_keys_and_loss(model: Path, tmp_path: Path):
    (tmp_path / "mine.py").write_text(OUTSIDE)
    sections = ({"name": f"{tmp_path}/mine.py", "scale": scale} for scale in (1.0, -1.0))
    specs = [spec(model, AlgorithmSection.model_validate(section), lr=3e-3) for section in sections]
    [(learned, unlearned)] = run("bandit", tmp_path, *specs)
    assert learned[-1] > 0.9
    assert unlearned[-1] < 0.1


def test_the_death_of_a_rank_is_an_error_on_the_others_within_their_deadline(model: Path, tmp_path: Path):
    said, dead = run("death", tmp_path, spec(model, step_timeout_s=10), ranks=2)
    assert dead is None
    assert said.startswith("LearnerError: learner rank 0 failed in step")
