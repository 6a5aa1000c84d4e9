"""The checks of scripts/verify-gpu that need only PyTorch, on a CPU: their own code runs, and they find faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.learner.test_attention import flash
from verification import attention, heads, reward_model, runs
from verification.check import BoundError, Setting, SkipError

FEW = {"one sequence": [(0, [40])], "tree": [(30, [5, 9, 1])]}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """On a busy machine threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    monkeypatch.setattr(attention, "PACKS", FEW)
    monkeypatch.setattr(attention, "WINDOWS", (None, 7))
    return Setting("cpu", 0, tmp_path)


def test_attention_is_compared_with_tiles_in_every_case(setting: Setting) -> None:
    assert attention.equality(setting, flash).startswith("16 cases; relative error")


def older(*args: Any) -> Tensor:
    """Flash attention of a PyTorch that knows neither groups nor windows."""
    return flash(*args, scale=1.0, window_size=(-1, 0), enable_gqa=False)


def loud(*args: Any, scale: float, window_size: tuple[int, int], enable_gqa: bool) -> Tensor:
    """Flash attention whose output is 2 % too large."""
    return 1.02 * flash(*args, scale=scale, window_size=window_size, enable_gqa=enable_gqa)


def broken(*args: Any, scale: float, window_size: tuple[int, int], enable_gqa: bool) -> Tensor:
    """Flash attention with a value that is not finite."""
    out = flash(*args, scale=scale, window_size=window_size, enable_gqa=enable_gqa)
    return out * torch.where(torch.arange(out.numel()) == 5, torch.nan, 1.0).view_as(out)


@pytest.mark.parametrize(("kernel", "said"), [(loud, "the error of flash"), (broken, "not finite")])
def test_attention_that_is_off_fails(setting: Setting, kernel: Any, said: str) -> None:
    with pytest.raises(BoundError, match=said):
        attention.equality(setting, kernel)


def test_flash_attention_without_groups_or_windows_is_skipped_and_not_failed(setting: Setting) -> None:
    with pytest.raises(SkipError, match=r"varlen_attn of PyTorch .+ has no enable_gqa, scale, window_size"):
        attention.equality(setting, older)


def test_the_memory_of_attention_is_measured_and_long_packs_are_compared(setting: Setting) -> None:
    said = attention.memory(setting, tokens=1024, most=float("inf"))
    assert said.startswith("peak of forward and backward pass with 1,024 tokens: one sequence")
    assert "a tree of 16" in said


def test_logits_are_not_rounded(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "vocabulary of 2,000: logprobs within" in heads.logits(setting, vocabulary=2000)
    monkeypatch.setattr("agentrl.learner.heads._logits", lambda weight: lambda hidden: (hidden @ weight.T).float())
    with pytest.raises(BoundError, match="error of a logprob"):
        heads.logits(setting, vocabulary=2000)


def test_scores_of_a_reward_model_are_compared(setting: Setting) -> None:
    assert reward_model.scores(setting) == "8 scores within 0.0e+00 of the CPU's (bound 0.0001)"


def test_the_doctor_is_compared_with_what_it_prints(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runs.doctor(setting).startswith("0 GPUs found; missing: ")
    with pytest.raises(BoundError, match="GPUs that agentrl does not find is 1"):
        runs.doctor(Setting("cuda", 1, setting.folder))
    monkeypatch.setattr("agentrl.cli.doctor.run", lambda words: print("MISSING  vllm  not installed"))
    with pytest.raises(BoundError, match=r"the exit code is None, missing are \['vllm'\]"):
        runs.doctor(setting)
