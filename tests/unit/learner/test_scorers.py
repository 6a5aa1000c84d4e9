"""Models that wait do so in CPU memory, and compute on their device what they did before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import pytest
import torch

from agentrl.algorithms.sample import Column
from agentrl.config.schema import AlgorithmSection, LearnerSection
from agentrl.learner import part, reference
from agentrl.learner.micro_batch import MicroBatch
from agentrl.learner.offload import lent, to_host
from agentrl.learner.part import Layout
from agentrl.learner.scorers import Scorers, SeparateScorers, score
from agentrl.learner.spec import LearnerSpec
from tests.tiny import tiny_model
from tests.unit.learner.synthetic import batch

COLUMNS: list[Column] = ["reference", "teacher"]


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> LearnerSpec:
    """Two ranks of a run with a reference and a teacher."""
    model, teacher = (tiny_model(tmp_path_factory.mktemp(f"model-{seed}"), seed=seed) for seed in range(2))
    section = LearnerSection(ranks=2, micro_batch_tokens=64)
    algorithm = AlgorithmSection.model_validate({"name": "distillation", "kl_coef": 0.1})
    return LearnerSpec(model, 10, dtype="float32", learner=section, algorithm=algorithm, teacher=teacher)


def columns(spec: LearnerSpec, scorers: Scorers) -> dict[Column, dict[int, list[float]]]:
    """What the two ranks compute with their models."""
    out: dict[Column, dict[int, list[float]]] = {column: {} for column in COLUMNS}
    for rank in range(2):
        share = Layout.of(spec, rank, 2).part(batch(), range(12))
        with scorers.on_device():
            computes = {column: scorers.compute_of(column) for column in COLUMNS}
            for column, rows in score(share, computes).items():
                out[column] |= {index: row.tolist() for index, row in rows.items()}
    return out


def test_a_device_gets_copies_of_tensors_that_wait() -> None:
    tensors = [torch.nn.Parameter(torch.arange(3.0), requires_grad=False), torch.ones(2, 2)]
    values = [tensor.tolist() for tensor in tensors]
    to_host(tensors)
    hosts = [tensor.data_ptr() for tensor in tensors]
    with lent(tensors, torch.device("cpu")):
        assert [tensor.tolist() for tensor in tensors] == values
        for tensor in tensors:
            tensor.zero_()
    assert [tensor.data_ptr() for tensor in tensors] == hosts
    assert [tensor.tolist() for tensor in tensors] == values


def test_offloaded_scorers_compute_the_same_columns_and_their_reference_moves(spec: LearnerSpec) -> None:
    plain, offloaded = Scorers(spec, COLUMNS), Scorers(spec, COLUMNS, offload=True)
    expected = columns(spec, plain)
    assert columns(spec, offloaded) == expected
    for scorers in (plain, offloaded):
        moved = [(name, values + 0.01) for name, values in scorers.models["teacher"].named_parameters()]
        reference.move(scorers.models["reference"], moved, ema=0.5)
    assert columns(spec, offloaded) == columns(spec, plain) != expected


@pytest.mark.parametrize("moves", [False, True])
def test_weights_of_scorers_have_the_type_of_their_products_unless_they_move(spec: LearnerSpec, moves: bool) -> None:
    scorers = Scorers(replace(spec, dtype="bfloat16"), COLUMNS, moves=moves)
    types = {
        column: {values.dtype for name, values in model.named_parameters() if "proj" in name}
        for column, model in scorers.models.items()
    }
    assert types == {"reference": {torch.float32 if moves else torch.bfloat16}, "teacher": {torch.bfloat16}}


def packed_by(scorers: Scorers) -> list[list[int]]:
    """The tokens of each micro-batch that goes through the teacher, from now on."""
    seen: list[list[int]] = []
    scorers.models["teacher"].register_forward_pre_hook(lambda _, args: seen.append(args[0].ids_N.tolist()))
    return seen


def test_separate_scorers_compute_what_all_ranks_do_to_the_bit(spec: LearnerSpec) -> None:
    """A tiny model has the same bits however it is packed, a large one has not: the micro-batches are compared too."""
    scorers, separate = Scorers(spec, COLUMNS), SeparateScorers(spec)
    by_ranks, alone = packed_by(scorers), packed_by(separate._scorers)
    shared, scores = columns(spec, scorers), separate.score(batch(), COLUMNS)
    assert {column: {n: row.tolist() for n, row in rows.items()} for column, rows in scores.items()} == shared
    assert sorted(shared["teacher"]) == list(range(12))
    assert shared["teacher"] != shared["reference"]
    assert alone == by_ranks


@dataclass(frozen=True)
class Launched:
    """A column on a device that is still computing it: who copies it waits."""

    values: torch.Tensor
    number: int
    events: list[str]

    def float(self) -> Launched:
        return self

    def cpu(self) -> torch.Tensor:
        self.events.append(f"read {self.number}")
        return self.values


def recorded(make: Callable[..., MicroBatch], events: list[str], *args: Any) -> MicroBatch:
    events.append(f"pack {events.count('launch')}")
    return make(*args)


@pytest.mark.parametrize("is_separate", [False, True])
def test_the_next_micro_batch_is_packed_before_the_host_waits_for_one(
    spec: LearnerSpec, monkeypatch: pytest.MonkeyPatch, is_separate: bool
) -> None:
    """Those of the next rank too, where one process scores for all of them."""
    events: list[str] = []
    for name in ("pack", "dummy_micro_batch"):
        monkeypatch.setattr(part, name, partial(recorded, getattr(part, name), events))

    def compute(micro_batch: MicroBatch) -> torch.Tensor:
        launched = Launched(torch.zeros(len(micro_batch.targets_A)), events.count("launch"), events)
        events.append("launch")
        return cast(torch.Tensor, launched)

    if is_separate:
        separate = SeparateScorers(spec)
        monkeypatch.setattr(separate._scorers, "compute_of", lambda _: compute)
        rows = separate.score(batch(), ["teacher"])["teacher"]
    else:
        rows = score(Layout.of(spec, 0, 1).part(batch(), range(12)), {"teacher": compute})["teacher"]
    assert sorted(rows) == list(range(12))
    count = events.count("launch")
    assert count > 3
    for number in range(count - 1):
        assert events.index(f"pack {number + 1}") < events.index(f"read {number}")


def test_a_column_keeps_no_more_memory_than_its_values_until_it_is_read(spec: LearnerSpec) -> None:
    scorers, sizes = Scorers(spec, COLUMNS), list[tuple[int, int]]()

    def compute(micro_batch: MicroBatch) -> torch.Tensor:
        values = scorers.compute_of("teacher")(micro_batch).float()
        sizes.append((values.untyped_storage().nbytes(), 4 * len(micro_batch.targets_A)))
        return values

    score(Layout.of(spec, 0, 1).part(batch(), range(12)), {"teacher": compute})
    assert len(sizes) > 3
    assert [held for held, _ in sizes] == [of_values for _, of_values in sizes]
