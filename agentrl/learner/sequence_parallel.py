"""Groups of ranks that share the tokens of a micro-batch (DeepSpeed-Ulysses, Jacobs et al., arXiv:2309.14509).

Suffix: A actions.
"""
# ruff: noqa: N803, N815

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from agentrl.config.models import rotary_of
from agentrl.config.sharing import check_heads, check_positions
from agentrl.learner.memory import copied
from agentrl.learner.text_config import heads_of, text_config


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """The adjacent ranks that share each micro-batch; this one is at `index` of `size`."""

    size: int
    index: int
    handle: dist.ProcessGroup

    @classmethod
    def join(cls, size: int, timeout_s: float) -> SequenceGroup:
        """Connect this rank to its group; all ranks of the learner call this together."""
        handle, _ = dist.new_subgroups(size, timeout=timedelta(seconds=timeout_s))  # type: ignore[no-untyped-call]
        return cls(size, dist.get_rank(handle), handle)

    def exchange(self, states: Tensor) -> Tensor:
        """Send row n of [size, ...] to rank n; return the rows that the ranks sent to this one. Differentiable."""
        received: Tensor = _Exchange.apply(states, self.handle)  # type: ignore[no-untyped-call]
        return received

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over the ranks. Its gradient is that of this rank's own term.

        What follows is the same on all ranks and counts once, therefore the gradients of the ranks are not added.
        """
        total: Tensor = _Sum.apply(values, self.handle)  # type: ignore[no-untyped-call]
        return total


class _Exchange(torch.autograd.Function):
    """An all-to-all, which is its own transpose."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, handle: dist.ProcessGroup) -> Tensor:
        ctx.handle = handle
        return _exchanged(states, handle)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return _exchanged(grads[0], ctx.handle), None


def _exchanged(states: Tensor, handle: dist.ProcessGroup) -> Tensor:
    states = states.contiguous()
    received = torch.empty_like(states)
    dist.all_to_all_single(received, states, group=handle)
    return received


class _Sum(torch.autograd.Function):
    """An all-reduce whose backward pass is the identity."""

    @staticmethod
    def forward(_ctx: Any, values: Tensor, handle: dist.ProcessGroup) -> Tensor:
        total = values.clone()
        dist.all_reduce(total, group=handle)
        return total

    @staticmethod
    def backward(_ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0], None


@dataclass(frozen=True, slots=True)
class Share:
    """A rank's share of a micro-batch of `actions` actions: it predicts those of the indices `own_A`."""

    group: SequenceGroup
    own_A: Tensor
    actions: int

    def to(self, device: torch.device) -> Share:
        """Return the share with its indices on a device."""
        return replace(self, own_A=copied(self.own_A, device))

    def join(self, values_A: Tensor) -> Tensor:
        """Return the values of all actions, from those of this rank's own. Differentiable."""
        return self.group.sum(values_A.new_zeros(self.actions).index_copy(0, self.own_A, values_A))


def check_models(folders: Iterable[Path], size: int) -> None:
    """Raise ConfigError for a model that groups of `size` ranks cannot share: by its heads or its positions."""
    for folder in folders:
        config = text_config(folder)
        check_heads(str(folder), *heads_of(config), size)
        check_positions(f"the model in {folder}", rotary_of(config), size)
