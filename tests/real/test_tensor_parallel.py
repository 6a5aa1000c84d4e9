"""Ranks that share weight matrices learn what one rank does: real DeepSpeed ranks over gloo, tiny models in float32."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from agentrl.config.schema import AlgorithmSection
from agentrl.learner import checkpoint
from agentrl.learner.spec import LearnerSpec
from tests.real.test_learner import assert_close, assert_same_state, run, spec, with_critic
from tests.real.test_sequence_parallel import CLOSE, LR, assert_same_critic, assert_same_steps, ppo
from tests.tiny import tiny_model, tiny_qwen3

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def shared(one: LearnerSpec, ranks: int, **learner: Any) -> LearnerSpec:
    """The same learner, whose ranks share weight matrices in groups of `ranks`."""
    return replace(one, learner=one.learner.model_copy(update={"tensor_parallel": ranks, **learner}))


def test_two_ranks_that_share_matrices_take_the_steps_of_one(model: Path, tmp_path_factory: Any):
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    untied, normed = tmp_path_factory.mktemp("untied"), tmp_path_factory.mktemp("normed")
    tiny_model(untied, tie=False)
    tiny_qwen3(normed)
    plain = spec(model, lr=LR)
    wide = {"clip_low": 0.2, "clip_high": 0.2}
    kinds = {
        "token loss": (plain, (0, 1, 2)),
        "clipped": (spec(model, lr=LR, max_grad_norm=1e-3), (0, 1)),
        "norms of heads": (spec(normed, lr=LR), (0, 2)),
        "head of its own": (spec(untied, lr=LR), (1,)),
        "sequence loss": (spec(model, AlgorithmSection(loss="gspo", **wide), lr=LR, updates_per_batch=2), (2,)),
        "reference and entropy": (spec(model, AlgorithmSection(kl_coef=0.1, entropy_coef=0.1), lr=LR), (0,)),
        "checkpointing": (replace(plain, gradient_checkpointing=True), (2,)),
    }
    alone = zip(kinds.values(), run("train", one, *(each for each, _ in kinds.values()))[0], strict=True)
    expected = [steps for (_, stages), steps in alone for _ in stages]
    names = [f"{name} at stage {stage}" for name, (_, stages) in kinds.items() for stage in stages]
    layouts = [shared(each, 2, zero_stage=stage) for each, stages in kinds.values() for stage in stages]
    for found in run("train", two, *layouts, ranks=2):
        assert_same_steps(found, expected, names)


def test_groups_of_ranks_divide_a_batch_as_single_ranks_do(model: Path, tmp_path_factory: Any):
    one, four = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("four")
    plain = spec(model, AlgorithmSection(kl_coef=0.1), lr=LR)
    [[alone]] = run("train", one, plain)
    layouts = [shared(plain, 2, zero_stage=stage) for stage in (0, 1, 2)]
    for found in run("train", four, *layouts, ranks=4):
        assert_same_steps(found, [alone] * 3, [f"2 x 2 at stage {stage}" for stage in (0, 1, 2)])


def test_a_critic_whose_matrices_are_shared_learns_what_it_does_on_one_rank(model: Path, tmp_path_factory: Any):
    plain = ppo(model)
    assert_same_critic(plain, shared(plain, 2), tmp_path_factory)


def test_a_checkpoint_goes_on_with_shared_matrices_and_without_them(model: Path, tmp_path_factory: Any):
    """Whole matrices -> parts -> whole matrices: the same elements in every checkpoint, the same steps after it."""
    one, four, again = (tmp_path_factory.mktemp(name) for name in ("one", "four", "again"))
    stages = (0, 1, 2)
    plain = [with_critic(model, stage, (stage + 1) % 3) for stage in stages]
    for source, target in ((one, four), (four, again)):
        for index in range(len(stages)):
            (target / f"from-{index}").symlink_to(source / f"step-{index}")
    results = {
        one: run("other_layout", one, *plain),
        four: run("other_layout", four, *(shared(each, 2) for each in plain), ranks=4),
        again: run("other_layout", again, *plain),
    }
    for index in range(len(stages)):
        straight, before, after = results[one][0][index]
        assert [len(models) > 0 for models in before] == [True, True, True]  # policy, EMA and critic
        for target in (four, again):
            assert_same_state(one / f"step-{index}", target / f"step-{index}")
            for resumed, start, end in (of_rank[index] for of_rank in results[target]):
                for name in ("loss", "grad_norm", "lr"):
                    assert getattr(resumed, name) == pytest.approx(getattr(straight, name), abs=CLOSE)
                assert_close(start, before, 0.0)
                assert_close(end, after, 5e-6)


def test_shared_matrices_are_published_and_saved_whole(model: Path, tmp_path: Path):
    first, second = run("publish", tmp_path, shared(spec(model), 2), ranks=2)
    assert second == [None]
    [(staged, digests)] = first
    assert dict(staged) == digests
    saved = load_file(tmp_path / "model-0" / checkpoint.MODEL / "model.safetensors")
    whole = load_file(model / "model.safetensors")
    assert {name: values.shape for name, values in saved.items()} == {n: values.shape for n, values in whole.items()}
    assert saved.keys() == digests.keys()


def test_a_moving_reference_with_shared_matrices_is_the_policys_average(model: Path, tmp_path: Path):
    section = AlgorithmSection(kl_coef=0.1, reference_every=2, reference_ema=0.75)
    for [(seen, is_resumed)] in run("moving_reference", tmp_path, shared(spec(model, section), 2), ranks=2):
        assert is_resumed
        (start, first), _, (policy, after), _ = seen
        for name, values in first.items():
            assert torch.equal(values, start[name])
            torch.testing.assert_close(after[name], 0.75 * values + 0.25 * policy[name], atol=1e-6, rtol=0)


def test_a_rank_refuses_a_model_whose_matrices_it_cannot_share(model: Path, tmp_path: Path):
    [said] = run("refused", tmp_path, shared(spec(model), 4))
    assert said == (
        f"ConfigError: learner.tensor_parallel 4: the model in {model} has 4 attention heads, 2 key/value heads and an "
        "MLP of width 128, which 4 ranks cannot divide equally. Possible are 1, 2"
    )


def test_in_bfloat16_shared_matrices_differ_from_whole_ones_by_rounding(model: Path, tmp_path_factory: Any):
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    plain = replace(spec(model, AlgorithmSection(kl_coef=0.1), lr=LR), dtype="bfloat16")
    [[(straight, _, plain_rows)]] = run("train", one, plain)
    for [(reports, _, rows)] in run("train", two, shared(plain, 2, zero_stage=2), ranks=2):
        for got, wanted in zip(reports, straight, strict=True):
            assert got.loss == pytest.approx(wanted.loss, abs=0.01)
            assert got.grad_norm == pytest.approx(wanted.grad_norm, rel=0.02)
        assert reports[0].meters["reference_kl"] == pytest.approx(
            0.0, abs=1e-7
        )  # the reference is divided as the policy
        for row, plain_row in zip(rows, plain_rows, strict=True):
            assert row == pytest.approx(plain_row, abs=0.02)
