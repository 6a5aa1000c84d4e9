"""Sampled tokens for tests of losses, as rows of numbers and as the Terms that a loss sees."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from agentrl.losses.terms import Terms


@dataclass(frozen=True)
class Token:
    """A sampled token: logprobs under the policy, the old policy and the sampler, its advantage and weight."""

    own: float
    old: float
    sampler: float
    advantage: float
    weight: float = 1.0
    entropy: float = 1.0
    reference: float = -1.0


Rows = list[list[Token]]


def random_rows(seed: int, spread: float = 0.5, shared_advantage: bool = False, masked: float = 1 / 8) -> Rows:
    """Sequences of one to nine tokens; `masked` is the chance that a token is."""
    rng = random.Random(seed)
    rows = []
    for _ in range(rng.randint(1, 5)):
        advantage, rows_own = rng.gauss(0, 1), []
        for _ in range(rng.randint(1, 9)):
            own = rng.uniform(-4, -0.1)
            old = own + rng.gauss(0, spread)
            rows_own.append(
                Token(
                    own,
                    old,
                    old + rng.gauss(0, spread),
                    advantage if shared_advantage else rng.gauss(0, 1),
                    float(rng.random() >= masked),
                    rng.uniform(0.1, 3.0),
                    own + rng.gauss(0, 1),
                )
            )
        rows.append(rows_own)
    return rows


@dataclass
class Seen:
    """Terms of rows in float64, and the leaf that its logprobs are."""

    terms: Terms
    logprobs: Tensor
    entropy: Tensor = field(default_factory=lambda: torch.empty(0))


def seen(rows: Rows, dtype: torch.dtype = torch.float64, **more: Any) -> Seen:
    """The rows as a loss sees them: packed without padding."""
    flat = list(chain.from_iterable(rows))

    def column(name: str) -> Tensor:
        return torch.tensor([getattr(token, name) for token in flat], dtype=dtype)

    logprobs, entropy = column("own").requires_grad_(), column("entropy").requires_grad_()
    terms = Terms(
        logprobs=logprobs,
        entropy=entropy,
        sampler=column("sampler"),
        old=column("old"),
        advantages=column("advantage"),
        weights=column("weight"),
        sequence=torch.tensor([number for number, row in enumerate(rows) for _ in row]),
        columns={"reference": column("reference")},
        **more,
    )
    return Seen(terms, logprobs, entropy)


def mean(values: list[float]) -> float:
    """The mean, 0 of nothing."""
    return sum(values) / len(values) if values else 0.0
