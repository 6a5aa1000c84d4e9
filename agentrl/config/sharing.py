"""What ranks, or the GPUs of an engine, can share of a model: its heads, its matrices, the tokens of a sequence."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from agentrl.config.models import LENGTH_DEPENDENT
from agentrl.config.validate import counted
from agentrl.errors import ConfigError

SHARED_STYLES = {"colwise", "rowwise", "replicated_with_grad_allreduce", "embedding_rowwise"}
"""What plans say of a layer that ranks can share: a matrix, a norm of heads, or a tied embedding, which stays whole."""


def check_heads(
    model: str, heads: int, kv_heads: int, sharers: int, key: str = "learner.sequence_parallel", who: str = "ranks"
) -> None:
    """Raise ConfigError unless so many sharers can divide a model's heads among each other in equal parts.

    Fewer heads of keys and values than sharers are repeated, if the sharers are a multiple of them.
    """
    known = [n for n in range(1, heads + 1) if not (heads % n or (kv_heads % n and n % kv_heads))]
    if sharers not in known:
        raise ConfigError(
            f"{key} {sharers}: {model} has {counted(heads, 'attention head')} and "
            f"{counted(kv_heads, 'key/value head')}, which {sharers} {who} cannot divide equally. "
            f"Possible are {', '.join(map(str, known))}"
        )


def check_matrices(model: str, heads: int, kv_heads: int, inner: int, ranks: int) -> None:
    """Raise ConfigError unless so many ranks can divide heads and the MLP's width `inner` in equal parts."""
    common = math.gcd(heads, kv_heads, inner)
    if common % ranks:
        known = [n for n in range(1, common + 1) if common % n == 0]
        raise ConfigError(
            f"learner.tensor_parallel {ranks}: {model} has {counted(heads, 'attention head')}, "
            f"{counted(kv_heads, 'key/value head')} and an MLP of width {inner}, which {ranks} ranks cannot divide "
            f"equally. Possible are {', '.join(map(str, known))}"
        )


def check_plan(model: str, styles: Collection[str], ranks: int) -> None:
    """Raise ConfigError unless so many ranks can share a model's matrices by the plan of transformers for it.

    `styles` are those of the layers in the plan, of which there are none without a plan.
    """
    unknown = ", ".join(sorted({*styles} - SHARED_STYLES))
    if ranks > 1 and (unknown or not styles):
        why = f"divides layers by {unknown}" if unknown else "does not exist"
        raise ConfigError(
            f"learner.tensor_parallel {ranks}: the plan of transformers for {model} {why}, which agentrl does not "
            "train yet. Set learner.tensor_parallel 1 and learner.zero_stage 3"
        )


def check_positions(model: str, rotary: Iterable[str], ranks: int) -> None:
    """Raise ConfigError if so many ranks share sequences whose length the `rotary` embeddings depend on, by type."""
    for kind in rotary:
        if ranks > 1 and kind in LENGTH_DEPENDENT:
            raise ConfigError(
                f"learner.sequence_parallel {ranks}: {model} has rotary embeddings of type {kind}, which depend on the "
                "length of a sequence, and no rank has all of it. Set learner.sequence_parallel 1, or choose another "
                "model."
            )
