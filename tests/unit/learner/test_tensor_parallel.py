"""Parts of shared parameters in files, and the models whose matrices ranks can share."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GPT2Config, LlamaConfig, MixtralConfig, Phi3Config, Qwen3Config

from agentrl.errors import ConfigError
from agentrl.learner.tensor_parallel import Cut, check_models, cut_of


@dataclass(frozen=True)
class Place(Cut):
    """The cut of one of several ranks, which knows what the others hold in the range that it writes."""

    place: int
    parts: tuple[torch.Tensor, ...]

    @property
    def size(self) -> int:
        return len(self.parts)

    @property
    def index(self) -> int:
        return self.place

    def _gathered(self, part: torch.Tensor) -> list[torch.Tensor]:
        return [*self.parts]


@given(
    rows=st.integers(1, 5), columns=st.integers(1, 5), size=st.integers(1, 4), dim=st.sampled_from([0, 1, None]),
    data=st.data(),
)  # fmt: skip
def test_parts_of_any_range_are_written_where_the_whole_has_them_and_read_back(
    rows: int, columns: int, size: int, dim: int | None, data: Any
) -> None:
    shape = torch.Size([rows * size if dim == 0 else rows, columns * size if dim == 1 else columns])
    whole = torch.arange(shape.numel()).view(shape)
    parts = [part.flatten() for part in (whole.chunk(size, dim) if dim is not None else [whole] * size)]
    length = len(parts[0])
    ends = sorted({0, length, *data.draw(st.lists(st.integers(0, length), max_size=3))})
    written: list[int] = []
    for start, stop in pairwise(ends):  # as ZeRO divides a part
        held = tuple(part[start:stop] for part in parts)
        for place in range(size):
            cut = Place(shape, dim, cast(Any, None), place, held)
            assert torch.equal(cut.part(whole), parts[place].view(-1, cut.part(whole).shape[1]))
            for at, values in cut.written(start, held[place]):
                assert values.tolist() == list(range(at, at + len(values)))
                written += values.tolist()
            found = cut.read(start, stop - start, lambda at, count: torch.arange(at, at + count))
            assert torch.equal(found, held[place])
    assert sorted(written) == list(range(shape.numel()))


def test_a_parameter_that_no_rank_shares_has_no_cut() -> None:
    assert cut_of(torch.zeros(2)) is None


SIZES: dict[str, int] = {"hidden_size": 192, "intermediate_size": 256}


def model(folder: Path, kind: Any = LlamaConfig, **options: Any) -> Path:
    kind(**SIZES, num_attention_heads=12, num_key_value_heads=4, **options).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", [LlamaConfig, Qwen3Config])
@pytest.mark.parametrize("size", [2, 4])
def test_matrices_that_the_ranks_divide_are_accepted(tmp_path: Path, kind: Any, size: int) -> None:
    check_models([model(tmp_path, kind)], size)


@pytest.mark.parametrize("size", [3, 5, 8, 12])
def test_matrices_that_the_ranks_cannot_divide_are_refused_with_the_numbers(tmp_path: Path, size: int) -> None:
    said = f"learner.tensor_parallel {size}: .* 12 attention heads, 4 key/value heads and .* 256.* Possible are 1, 2, 4"
    with pytest.raises(ConfigError, match=said):
        check_models([model(tmp_path)], size)


def test_models_without_a_plan_or_with_another_division_are_refused_by_name(tmp_path: Path) -> None:
    for kind in (MixtralConfig, Phi3Config):
        with pytest.raises(ConfigError, match=r"\((mixtral|phi3)\) divides layers by .* learner.zero_stage 3"):
            check_models([model(tmp_path, kind, pad_token_id=0)], 2)
    GPT2Config().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"\(gpt2\) does not exist"):
        check_models([tmp_path], 2)


def test_a_model_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"no model can be loaded from {tmp_path}"):
        check_models([tmp_path], 2)
