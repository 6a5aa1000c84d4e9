"""The checks of scripts/verify-gpu that start real processes, on the CPU: their own code runs, and they find faults."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.real.runs import QUICK
from tests.real.vllm_kit import UNCLOSED
from verification import engines, learner, placement, plan, runs, transfers
from verification.check import BoundError, Setting
from verification.models import small
from verification.ranks import Trained

pytestmark = [pytest.mark.real, pytest.mark.timeout(600), pytest.mark.filterwarnings(UNCLOSED)]

ONE = Trained((1.0, 1.1), (0.5, 0.6), (-1.0,), (-0.9,), 100, 10, 5)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine in this process sets the first two variables, which are restored."""
    for name in ("TMPDIR", "VLLM_RPC_BASE_PATH"):
        monkeypatch.setenv(name, tempfile.gettempdir())
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def setting() -> Iterator[Setting]:
    with tempfile.TemporaryDirectory(prefix="v-") as folder:  # paths of sockets are short
        yield Setting("cpu", 0, Path(folder))


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small model and few tokens; a process's resident memory says nothing about a model's."""
    monkeypatch.setattr(learner, "deep", small)
    for name, value in {"TOKENS": 512, "LENGTH": 64, "PEAK": 1e9, "BYTES_PER_PARAMETER": 1e9}.items():
        monkeypatch.setattr(learner, name, value)


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize(
    "name",
    [
        *("step", "repetition", "nccl", "checkpointing", "memory"),
        *(pytest.param(name, marks=pytest.mark.long) for name in ("zero", "lora", "muon", "scorers_offload")),
        *(pytest.param(name, marks=pytest.mark.long) for name in ("parameters_offload", "sharded_reference")),
    ],
)
def test_a_check_of_the_learner_passes_where_both_sides_are_the_cpu(setting: Setting, name: str) -> None:
    said = getattr(learner, name)(setting)
    assert any(words in said for words in ("bound", "bytes per parameter", "the same numbers"))
    if name == "nccl":
        assert "stage 3 on 2 ranks: loss" in said


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (replace(ONE, losses=(1.0, 1.2)), "the difference of the loss is 0.0909"),
        (replace(ONE, norms=(0.5, float("nan"))), "the difference of the norm is nan"),
        (replace(ONE, after=(-0.8,)), "the difference of the logprob is 0.1"),
        (replace(ONE, before=(-0.9,)), "changed no logprob"),
    ],
)
def test_learners_that_differ_or_do_not_learn_fail(found: Trained, said: str) -> None:
    with pytest.raises(BoundError, match=said):
        learner._close("it", found, ONE, 1e-3)


def test_the_memory_of_a_rank_is_compared_with_the_plan(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 512,
    }
    monkeypatch.setattr(plan, "SIZES", {"tiny": sizes})
    monkeypatch.setattr(plan, "TOKENS", 512)
    with pytest.raises(BoundError, match=r"the difference between tiny without [\d,]+ MiB, planned \d+, is"):
        plan.rank(setting)  # what a process of this size holds is mostly no tensor of its model
    monkeypatch.setattr(plan, "MARGIN", 1e9)
    assert plan.rank(setting).count("MiB, planned") == 2


def test_a_rank_that_fails_fails_the_check(setting: Setting) -> None:
    with pytest.raises(BoundError, match=r"the processes of 1 ranks ended with \[1\]"):
        learner.trained([learner.spec(setting.folder / "nowhere", "cpu")], learner.STEPS, setting.folder)


def test_what_an_engine_samples_is_compared_with_the_learner(setting: Setting) -> None:
    assert engines.sampling(setting).startswith("768 sampled tokens, logprobs differ from the learner's by ")


def test_two_adapters_are_compared_with_the_learner(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    said = engines.adapter(setting)
    assert "first adapter: 768 sampled tokens" in said
    assert "second: 768 sampled tokens" in said


def test_a_learner_with_other_weights_is_noticed(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    load = engines.load_model
    other = small(setting.folder / "other", seed=1)
    monkeypatch.setattr(engines, "load_model", lambda model, *rest: load(other, *rest))
    with pytest.raises(BoundError, match="mean difference of a sampled logprob"):
        engines.sampling(setting)


def test_publications_by_the_processes_of_a_run_are_compared(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    said = transfers.shared_memory(setting)
    assert said.startswith("shm, ")
    assert said.count("canary") == transfers.PUBLICATIONS


def test_processes_see_the_gpus_that_ray_gives_them(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"GPU": 2}')
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    said = placement.gpus(replace(setting, gpus=2))
    assert said.startswith("a rank and its engine see one GPU, 2 with a GPU each see different ones")


def test_a_run_with_a_reward_model_beside_the_learner_is_lawful(setting: Setting) -> None:
    said = runs.rewards(setting, *runs.ON_CPUS, "--learner.threads", "1")
    assert said.endswith("a replay gives the same weights")


def test_an_evaluation_scores_a_model_without_a_learner(setting: Setting) -> None:
    assert runs.evaluation(setting, *runs.ON_CPUS).startswith("8 samples of 2 tasks, pass@1 ")
