"""Three forms of the same attention over a pack: tiles, one dense bias, and transformers' sdpa on a padded batch.

Suffixes: N tokens of the pack, B rows of the batch, L their length, H heads of queries, D head size.
"""
# ruff: noqa: N803, N806

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import create_causal_mask

from agentrl.learner.attention.tiles import Tiles
from benchmarks.packs import Pack


class Form(Protocol):
    """Attention over a pack, in a layout of its own."""

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the output, in the layout of the queries."""

    def spread(self, states_NHD: Tensor) -> Tensor:
        """Return states of the pack in this layout, copied wherever a token is repeated."""

    def placed(self, grads_NHD: Tensor) -> Tensor:
        """Return gradients of the output in this layout, each at one place of its token."""

    def gathered(self, states: Tensor) -> Tensor:
        """Return [N, H, D]: states of each token, from one of its places."""

    def summed(self, grads: Tensor) -> Tensor:
        """Return [N, H, D]: gradients of each token, over all of its places."""


class _Packed:
    """The layout of the pack itself."""

    def spread(self, states_NHD: Tensor) -> Tensor:
        return states_NHD.clone()

    placed = gathered = summed = spread


class Tiled(_Packed):
    """agentrl's tiles."""

    def __init__(self, pack: Pack) -> None:
        self._tiles = Tiles(pack.spans, pack.positions_N)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self._tiles(query, key, value, query.shape[-1] ** -0.5, None)


class Dense(_Packed):
    """PyTorch's SDPA with one bias [N, N]."""

    def __init__(self, pack: Pack) -> None:
        self._bias_NN = torch.full((len(pack), len(pack)), -math.inf, dtype=torch.bfloat16)
        for span in pack.spans:
            own = slice(span.start, span.stop)
            self._bias_NN[own, span.prefix : span.prefix_stop] = 0
            self._bias_NN[own, own].triu_(1)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        repeats = query.shape[1] // key.shape[1]
        key, value = (states.repeat_interleave(repeats, 1) for states in (key, value))
        query, key, value = (states.transpose(0, 1)[None] for states in (query, key, value))
        return functional.scaled_dot_product_attention(query, key, value, self._bias_NN)[0].transpose(0, 1)


class Padded:
    """transformers' sdpa over whole sequences, padded at their ends."""

    def __init__(self, pack: Pack) -> None:
        sequences = pack.sequences()
        self._index_BL = pad_sequence(sequences, batch_first=True)
        self._seen_BL = pad_sequence([torch.ones_like(row) for row in sequences], batch_first=True)
        self._place_N = torch.zeros(len(pack), dtype=torch.long)
        for row, tokens in reversed(list(enumerate(sequences))):  # so that the first place of a token stays
            self._place_N[tokens] = row * self._index_BL.shape[1] + torch.arange(len(tokens))
        config = LlamaConfig(attn_implementation="sdpa")
        embeds_BL1 = torch.empty(*self._index_BL.shape, 1, dtype=torch.bfloat16)
        self._mask: Any = create_causal_mask(config, embeds_BL1, self._seen_BL, None)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        module: Any = SimpleNamespace(num_key_value_groups=query.shape[2] // key.shape[2], is_causal=True)
        heads_first = (states.transpose(1, 2) for states in (query, key, value))
        out: Tensor = sdpa_attention_forward(module, *heads_first, self._mask, scaling=query.shape[-1] ** -0.5)[0]
        return out

    def spread(self, states_NHD: Tensor) -> Tensor:
        return states_NHD[self._index_BL]

    def placed(self, grads_NHD: Tensor) -> Tensor:
        places = self._index_BL.numel()
        placed = grads_NHD.new_zeros(places, *grads_NHD.shape[1:]).index_copy_(0, self._place_N, grads_NHD)
        return placed.view(*self._index_BL.shape, *grads_NHD.shape[1:])

    def gathered(self, states: Tensor) -> Tensor:
        return states.flatten(0, 1)[self._place_N]

    def summed(self, grads: Tensor) -> Tensor:
        is_real = self._seen_BL.flatten().bool()
        index, values = self._index_BL.flatten()[is_real], grads.flatten(0, 1)[is_real].float()
        return values.new_zeros(len(self._place_N), *grads.shape[2:]).index_add_(0, index, values)


FORMS: dict[str, Callable[[Pack], Form]] = {"tiles": Tiled, "dense": Dense, "padded": Padded}
"""What is compared, by the names of the sides; the first is agentrl's."""
