"""Shares of a micro-batch: every token and every action is in one of them; models without shares are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from transformers import LlamaConfig

from agentrl.algorithms.sample import TrainSequence
from agentrl.errors import ConfigError
from agentrl.learner.attention.spans import Span
from agentrl.learner.batch import build_trees
from agentrl.learner.micro_batch import MicroBatch, pack
from agentrl.learner.part import Layout
from agentrl.learner.sequence_parallel import SequenceGroup, check_models
from tests.unit.learner.synthetic import batch

CPU = torch.device("cpu")


def group(size: int, index: int) -> SequenceGroup:
    """A group without the other processes."""
    return SequenceGroup(size, index, cast(Any, None))


def packed(sequences: list[TrainSequence], ranks: int) -> MicroBatch:
    return pack(sequences, build_trees(sequences, range(len(sequences))), ranks)


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_tokens_that_nothing_reads_pad_a_pack_to_a_multiple_of_the_ranks(ranks: int) -> None:
    sequences = batch()
    plain, wide = packed(sequences, 1), packed(sequences, ranks)
    tokens = len(plain.ids_N)
    padding = -tokens % ranks
    assert padding < ranks
    assert len(wide.ids_N) == tokens + padding
    assert torch.equal(wide.ids_N[:tokens], plain.ids_N)
    assert torch.equal(wide.positions_N[:tokens], plain.positions_N)
    assert torch.equal(wide.source_A, plain.source_A)
    own = (Span(tokens, tokens + padding, tokens, tokens),) * bool(padding)
    assert wide.spans == (*plain.spans, *own)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_token_and_every_action_is_in_one_share(ranks: int) -> None:
    whole = packed(batch(), ranks)
    shares = [whole.to(CPU, torch.float32, group(ranks, index)) for index in range(ranks)]
    for name in ("ids_N", "positions_N"):
        assert torch.equal(torch.cat([getattr(share, name) for share in shares]), getattr(whole, name))
    assert len({len(share.ids_N) for share in shares}) == 1
    indices = [share.share.own_A for share in shares if share.share]
    assert sorted(torch.cat(indices).tolist()) == list(range(len(whole.source_A)))
    for own, share in zip(indices, shares, strict=True):
        for name in ("targets_A", "temperature_A"):
            assert torch.equal(getattr(share, name), getattr(whole, name)[own])
        assert torch.equal(share.ids_N[share.source_A], whole.ids_N[whole.source_A[own]])
        assert torch.equal(share.positions_N[share.source_A], whole.positions_N[whole.source_A[own]])
        assert torch.equal(share.sequence_A, whole.sequence_A)
        assert share.members == whole.members


def test_the_ranks_of_a_group_have_the_plan_of_one_rank_with_their_tokens_together() -> None:
    sequences = batch(6, 4)
    layouts = [Layout(rank, 4, 32, CPU, torch.float32, group(2, rank % 2)) for rank in range(4)]
    plans = [layout.part(sequences, range(len(sequences))) for layout in layouts]
    larger = [Layout(rank, 2, 64, CPU, torch.float32).part(sequences, range(len(sequences))) for rank in range(2)]
    assert [part.plan for part in plans] == [larger[0].plan, larger[0].plan, larger[1].plan, larger[1].plan]
    assert len(larger[0].plan) > 1
    assert plans[0].scale == 4 / plans[0].total


def test_shares_take_turns_with_dummies_where_a_group_has_no_trees_left() -> None:
    [sequence] = batch(1, 1)
    layouts = [Layout(rank, 4, 4096, CPU, torch.float32, group(2, rank % 2)) for rank in range(4)]
    shares = [next(iter(layout.part([sequence], [0]))) for layout in layouts]
    assert [share.is_dummy for share in shares] == [False, False, True, True]
    assert len({len(share.ids_N) for share in shares}) == 1


def model(folder: Path, **options: Any) -> Path:
    LlamaConfig(hidden_size=192, num_attention_heads=12, num_key_value_heads=4, **options).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("size", [2, 4, 12])
def test_heads_that_the_ranks_divide_or_repeat_are_accepted(tmp_path: Path, size: int) -> None:
    check_models([model(tmp_path)], size)


@pytest.mark.parametrize("size", [3, 5, 6, 8, 24])
def test_heads_that_the_ranks_cannot_divide_are_refused_with_the_numbers(tmp_path: Path, size: int) -> None:
    said = f"learner.sequence_parallel {size}: .* 12 attention heads and 4 key/value heads.* Possible are 1, 2, 4, 12"
    with pytest.raises(ConfigError, match=said):
        check_models([model(tmp_path)], size)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_rotary_embeddings_that_depend_on_the_length_are_refused(tmp_path: Path, kind: str) -> None:
    scale = {"long_factor": [1.0] * 8, "short_factor": [1.0] * 8} if kind == "longrope" else {}
    rope = {"rope_type": kind, "factor": 2.0, "rope_theta": 1e4, "original_max_position_embeddings": 512, **scale}
    model(tmp_path, rope_parameters=rope, max_position_embeddings=1024)
    with pytest.raises(ConfigError, match=f"rotary embeddings of type {kind}"):
        check_models([tmp_path], 2)


def test_a_model_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"no model can be loaded from {tmp_path}"):
        check_models([tmp_path], 2)
