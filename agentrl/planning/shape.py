"""The shape of a model: the numbers from which its memory and its operations are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol

from agentrl.config.validate import is_named

FLOAT32, BFLOAT16 = 4, 2
"""Bytes of a number."""


@dataclass(frozen=True, slots=True)
class Linear:
    """Equal linear layers of the blocks, by the names of their modules: each is a matrix of [outputs, inputs]."""

    names: tuple[str, ...]
    inputs: int
    outputs: int

    def parameters(self, rank: int, names: Sequence[str]) -> int:
        """Return the parameters of adapters of a rank on the layers that these names name; on all without names."""
        adapted = _matches(self.names, tuple(names)) if names else len(self.names)
        return rank * (self.inputs + self.outputs) * adapted


@cache
def _matches(layers: tuple[str, ...], names: tuple[str, ...]) -> int:
    """Return how many layers the names name; cached, because a search for settings asks for each of its plans."""
    return sum(any(is_named(layer, name) for name in names) for layer in layers)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A causal language model, or a classifier, by its numbers.

    `parameters` counts every tensor once, `matrices` those of its blocks that are factors of matrix products, `active`
    the parameters that one token goes through (without an expert that it is not sent to). `inner` is the width of the
    MLP that a token sees: that of its experts together. `largest` is the size of the largest tensor, `context` the
    longest sequence, 0 if the model does not say. `latent` is the width of the vector that multi-head latent attention
    caches of a token in each layer, in place of the keys and values of all heads; 0 for other attention. `rotary` are
    the types of its rotary embeddings, `styles` those by which transformers' plan for it divides layers. `unpackable`
    says why the learner cannot pack its sequences, "" if it can; `stored` are the bytes of a parameter in its files.
    """

    kind: str
    parameters: int
    matrices: int
    active: int
    largest: int
    vocabulary: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    latent: int
    context: int
    is_tied: bool
    is_gated: bool
    has_head_norm: bool
    linears: tuple[Linear, ...] = ()
    rotary: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    unpackable: str = ""
    stored: int = FLOAT32

    @property
    def queries(self) -> int:
        """Width of the queries of all heads."""
        return self.heads * self.head_size

    @property
    def keys(self) -> int:
        """Width of the keys of all heads, which is that of the values."""
        return self.kv_heads * self.head_size

    @property
    def embedding(self) -> int:
        """Parameters of the embedding, and of the head."""
        return self.vocabulary * self.hidden

    def frozen_bytes(self, width: int) -> int:
        """Return the bytes of a model that is not trained: linear layers in a compute type of `width`, else float32."""
        linear = sum(layer.inputs * layer.outputs * len(layer.names) for layer in self.linears)
        head = 0 if self.is_tied else self.embedding
        return FLOAT32 * self.parameters - (FLOAT32 - width) * (linear + head)

    def divided(self, ranks: int) -> ModelShape:
        """Return what each of the ranks that share the matrices of the blocks has: the other tensors are whole."""
        others = self.matrices - self.matrices // ranks
        linears = tuple(replace(linear, outputs=linear.outputs // ranks) for linear in self.linears)
        return replace(
            self,
            parameters=self.parameters - others,
            active=self.active - others,
            matrices=self.matrices // ranks,
            inner=self.inner // ranks,
            heads=self.heads // ranks,
            kv_heads=self.kv_heads // ranks,
            linears=linears,
        )

    def adapters(self, rank: int, names: Sequence[str] = ()) -> int:
        """Return the parameters of LoRA adapters of a rank, on the layers of these names; on all without names."""
        return sum(linear.parameters(rank, names) for linear in self.linears)


class ModelReader(Protocol):
    """Describes models by their names. Raises ConfigError for one that cannot be read."""

    def shape(self, name: str) -> ModelShape:
        """Return the shape of a causal language model."""

    def reward_shape(self, name: str) -> ModelShape:
        """Return the shape of a reward model: a sequence classifier of any architecture."""
