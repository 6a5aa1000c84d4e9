from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.algorithms import Algorithm, resolve
from agentrl.algorithms.driver import assign
from agentrl.algorithms.sample import TrainSequence, plain_sequence, samples_of, train_sequences
from agentrl.errors import AlgorithmError
from agentrl.learner.batch import (
    PrefixTree,
    build_trees,
    groups_with_signal,
    plan_micro_batches,
    split_tree,
    split_updates,
    with_gradient,
)
from agentrl.types import Group, SampleId, Segment, Signal, StopReason, TokenSequence, Trajectory
from tests.unit.learner.synthetic import batch, sequence


def trajectory(member: int, reward: float, *lengths: int) -> Trajectory:
    sequences = tuple(
        TokenSequence((Segment((7, 8), is_action=False), Segment((5,) * n, is_action=True, logprobs=(-1.0,) * n)))
        for n in lengths
    )
    signal = Signal("r", reward)
    return Trajectory(
        SampleId(0, member), 0, "train", 0, "0", sequences, (), (signal,), StopReason.ENV_DONE, temperature=0.7
    )


def credited(groups: list[Group], rule: Algorithm) -> list[TrainSequence]:
    samples = samples_of(groups)
    assign(rule, samples)
    return train_sequences(samples)


def test_sequences_hold_the_sampled_tokens_and_are_left_out_without_any():
    group = Group(0, (trajectory(0, 1.0, 2, 0), trajectory(1, 0.0, 1)))
    first, second = credited([group], resolve("rloo")())
    assert (first.ids.tolist(), first.mask.tolist()) == ([7, 8, 5, 5], [False, False, True, True])
    assert first.columns.sampler.tolist() == [-1.0, -1.0]
    assert (first.columns.advantages.tolist(), second.columns.advantages.tolist()) == ([1.0, 1.0], [-1.0])
    assert (first.sample, first.temperature, first.share) == (SampleId(0, 0), 0.7, 2.0)


def test_a_group_has_a_signal_if_a_sampled_token_has_an_advantage():
    def with_advantages(group: int, *advantages: float) -> TrainSequence:
        return sequence(SampleId(group, 0), [7, 5, 5], [0, 1, 1], [0.0] * 3, list(advantages))

    batch = [with_advantages(0, 0.0, 0.0, 0.5), with_advantages(1, 0.5, 0.0, 0.0), with_advantages(2, 0.0, 0.0, 0.0)]
    assert [one.has_signal for one in batch] == [True, False, False]
    assert groups_with_signal(batch) == {0}


def test_a_masked_sequence_needs_no_forward_pass_even_with_a_term_beside_the_advantage():
    rows = [
        sequence(SampleId(0, n), [7, 5], [0, 1], [0.0] * 2, [0.0, value]) for n, value in enumerate((1.0, 0.0, 1.0))
    ]
    rows[2] = rows[2].with_columns(weights=np.zeros(1, dtype=np.float32))
    assert with_gradient(rows, needs_signal=True) == [0]
    assert with_gradient(rows, needs_signal=False) == [0, 1]


def test_a_sample_without_any_sampled_token_is_refused():
    with pytest.raises(AlgorithmError, match="sample 0-1 has no sampled token"):
        credited([Group(0, (trajectory(0, 1.0, 2), trajectory(1, 0.0, 0)))], resolve("rloo")())


def test_a_group_below_the_minimum_size_is_refused():
    lonely = Group(3, (trajectory(0, 1.0, 2),))
    with pytest.raises(AlgorithmError, match=r"group 0 has 1 valid samples, grpo needs 2"):
        credited([lonely], resolve("grpo")())
    assert credited([lonely], resolve("reinforce++")())


@given(groups=st.integers(1, 6), members=st.integers(1, 5), count=st.integers(1, 8))
def test_updates_hold_every_sequence_once_and_keep_groups_whole_while_they_can(groups: int, members: int, count: int):
    sequences = batch(groups, members)
    parts = split_updates(sequences, count)
    assert sorted(s.sample for part in parts for s in part) == [s.sample for s in sequences]
    assert len(parts) <= count
    if groups >= count:
        owners = [{s.sample.group for s in part} for part in parts]
        assert sum(len(owner) for owner in owners) == groups


def test_a_tree_shares_the_common_context_but_never_a_sampled_token():
    one, two = batch(1, 2)
    prompt = int(one.mask.argmax())
    shared = one.ids[:prompt].tolist()
    twin = plain_sequence(two.sample, [*shared, 5, 6], prompt)
    same = plain_sequence(one.sample, [*shared, 5, 9], prompt)
    [tree] = build_trees([same, twin], [0, 1])
    assert tree.prefix == prompt
    [short] = build_trees([same, plain_sequence(two.sample, [*shared[:-1], 300, 5, 6], prompt)], [0, 1])
    assert short.prefix == prompt - 1


@given(
    seed=st.integers(0, 50),
    groups=st.integers(1, 6),
    members=st.integers(1, 6),
    ranks=st.integers(1, 4),
    budget=st.integers(4, 200),
)
def test_a_plan_runs_every_sequence_once_in_equally_many_micro_batches_within_the_budget(
    seed: int, groups: int, members: int, ranks: int, budget: int
):
    sequences = batch(groups, members, seed)
    planned = plan_micro_batches(build_trees(sequences, range(len(sequences))), ranks, budget)
    assert len(planned) == ranks
    assert len({len(rank) for rank in planned}) == 1
    contents = [content for rank in planned for content in rank]
    assert sorted(m for content in contents for tree in content for m in tree.members) == list(range(len(sequences)))
    for content in contents:
        assert sum(tree.tokens for tree in content) <= budget or (len(content) == 1 and len(content[0].members) == 1)
    if len(sequences) >= ranks:
        assert all(rank[0] for rank in planned)
    columns = list(zip(*planned, strict=True))
    assert all(all(column) for column in columns[:-1]), "only the last micro-batch may lack trees on some ranks"
    assert any(columns[-1])


@pytest.mark.parametrize(
    ("length", "count", "ranks", "micro_batches"), [(8000, 512, 8, 64), (16000, 256, 8, 32), (32000, 128, 8, 16)]
)
def test_sequences_longer_than_the_budget_cost_no_pass_without_data(
    length: int, count: int, ranks: int, micro_batches: int
) -> None:
    trees = [PrefixTree(0, (index,), (length,)) for index in range(count)]
    planned = plan_micro_batches(trees, ranks, 4096)
    assert [len(rank) for rank in planned] == [micro_batches] * ranks
    assert all(content for rank in planned for content in rank)


@pytest.mark.parametrize(
    ("longs", "shorts", "micro_batches"),
    [((64, 32_000), (512, 500), 16), ((256, 8000), (256, 500), 36), ((128, 8000), (384, 1000), 28)],
)
def test_long_sequences_do_not_spread_the_short_ones_over_more_passes(
    longs: tuple[int, int], shorts: tuple[int, int], micro_batches: int
) -> None:
    """As few as if each long one filled its micro-batch exactly."""
    lengths = [length for count, length in (longs, shorts) for _ in range(count)]
    planned = plan_micro_batches([PrefixTree(0, (n,), (length,)) for n, length in enumerate(lengths)], 8, 4096)
    assert [len(rank) for rank in planned] == [micro_batches] * 8
    assert micro_batches == math.ceil(sum(min(length, 4096) for length in lengths) / (4096 * 8))


def test_the_micro_batches_that_ranks_run_at_the_same_time_have_about_the_same_size() -> None:
    """A rank waits for the others in every micro-batch: a long one beside short ones would cost as much as many."""
    lengths = [9000, 300, 8000, 200, 7000, 9500, 250, 100]
    planned = plan_micro_batches([PrefixTree(0, (n,), (length,)) for n, length in enumerate(lengths)], 4, 4096)
    loads = [[sum(tree.tokens for tree in content) for content in column] for column in zip(*planned, strict=True)]
    assert sum(max(column) for column in loads) <= 9500 + 300


@given(seed=st.integers(0, 30), budget=st.integers(1, 60))
def test_splitting_a_tree_keeps_every_branch_behind_its_prefix(seed: int, budget: int):
    sequences = batch(1, 6, seed)
    [tree] = build_trees(sequences, range(6))
    parts = split_tree(tree, budget)
    assert [m for part in parts for m in part.members] == list(tree.members)
    assert {part.prefix for part in parts} == {tree.prefix}
