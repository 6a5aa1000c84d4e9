"""Updates on GPUs can be repeated to the digit: what torch is given before a learner computes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from agentrl.algorithms.sample import Column
from agentrl.config.schema import LearnerSection
from agentrl.errors import AlgorithmError, LearnerError
from agentrl.learner import rank as ranks
from agentrl.learner import scorers
from agentrl.learner.determinism import WORKSPACE
from agentrl.learner.rank import LearnerRank
from agentrl.learner.scorers import Compute, SeparateScorers
from agentrl.learner.spec import LearnerSpec


class Rank(LearnerRank):
    """A rank without a model."""

    def scatter(self) -> torch.Tensor:
        """Write one place twice, which no implementation of torch orders."""
        with self._activity("scatter"):
            return torch.zeros(2).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))

    def lose(self) -> None:
        """Compute an author's loss that does the same."""
        with self._activity("step"):
            try:
                torch.zeros(2).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))
            except RuntimeError as error:
                raise AlgorithmError(f"mine: its loss failed: {error}") from error

    def _compute_of(self, column: Column) -> Compute:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ranks, "join_process_group", lambda *_: None)
    monkeypatch.delenv(WORKSPACE, raising=False)
    fills = torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = fills
    os.environ.pop(WORKSPACE, None)


def spec(device: str, **learner: bool) -> LearnerSpec:
    return LearnerSpec(Path("model"), 1, device=device, learner=LearnerSection.model_validate({"ranks": 1, **learner}))


def rank(device: str, **learner: bool) -> Rank:
    return Rank(spec(device, **learner), 0, 1, "127.0.0.1", 0)


def test_a_rank_on_a_gpu_computes_what_a_replay_can_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    rank("cuda")
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.is_deterministic_algorithms_warn_only_enabled(), "flash attention would stay as it is"
    assert os.environ[WORKSPACE] == ":4096:8"
    monkeypatch.setenv(WORKSPACE, ":16:8")
    rank("cuda")
    assert os.environ[WORKSPACE] == ":16:8", "the user's own"


def test_scorers_in_a_process_of_their_own_compute_what_a_rank_computes_in_a_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scorers, "Scorers", lambda *_: None)
    SeparateScorers(spec("cuda"))
    assert torch.are_deterministic_algorithms_enabled()


def test_a_rank_on_a_cpu_or_without_determinism_leaves_torch_as_it_is() -> None:
    rank("cpu").scatter()
    rank("cuda", deterministic=False).scatter()
    assert not torch.are_deterministic_algorithms_enabled()
    assert WORKSPACE not in os.environ


def test_an_operation_that_cannot_be_repeated_is_named_with_the_key_that_allows_it() -> None:
    said = r"learner rank 0 failed in scatter: put_ .*\. Set learner\.deterministic to false: the run trains, but"
    with pytest.raises(LearnerError, match=said):
        rank("cuda").scatter()
    with pytest.raises(AlgorithmError, match=r"mine: its loss failed: put_ .*\. Set learner\.deterministic to false"):
        rank("cuda").lose()
