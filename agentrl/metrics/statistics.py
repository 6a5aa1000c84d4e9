"""Scores with intervals: unbiased pass@k, with the task as the unit of uncertainty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Method = Literal["wilson", "bootstrap", "t", "none"]

Z = 1.959964


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval and the method of the interval ("none": nothing to estimate it from)."""

    mean: float
    low: float
    high: float
    method: Method

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def pass_at_k(correct: int, samples: int, k: int) -> float:
    """Unbiased estimate of the chance that at least one of k samples is right, from `correct` right ones of `samples`.

    1 - C(n - c, k) / C(n, k) (Chen et al. 2021, arXiv:2107.03374). Raises ValueError when k > samples.
    """
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs at least {max(k, 1)} samples of a task; there are {samples}")
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def pass_at_k_interval(correct: Sequence[int], samples: Sequence[int], k: int = 1, seed: int = 0) -> Interval:
    """pass@k over tasks; task i has `correct[i]` right ones of `samples[i]`. Tasks with fewer than k are left out.

    Samples of one task depend on each other, so the interval is a percentile bootstrap over tasks (10,000 resamples).
    If every task scores 0 or 1, or all score the same, which a bootstrap would call certain, it is Wilson's interval
    over the tasks: exact enough for few tasks and never empty.
    """
    scores = [pass_at_k(c, n, k) for c, n in zip(correct, samples, strict=True) if n >= k]
    if not scores:
        return Interval(math.nan, math.nan, math.nan, "none")
    if len(set(scores)) == 1 or set(scores) <= {0.0, 1.0}:
        return wilson(sum(scores), len(scores))
    return bootstrap(scores, seed)


def wilson(successes: float, trials: int) -> Interval:
    """Wilson's interval for a proportion of independent trials (Wilson 1927)."""
    share = successes / trials
    centre = (share + Z * Z / (2 * trials)) / (1 + Z * Z / trials)
    half = Z / (1 + Z * Z / trials) * math.sqrt(share * (1 - share) / trials + Z * Z / (4 * trials * trials))
    return Interval(share, min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half)), "wilson")


def bootstrap(scores: Sequence[float], seed: int = 0, resamples: int = 10_000) -> Interval:
    """Return the percentile bootstrap of the mean of independent scores."""
    random = np.random.default_rng(seed)
    values = np.asarray(scores, dtype=np.float64)
    drawn = [
        values[random.integers(len(values), size=(100, len(values)))].mean(axis=1) for _ in range(resamples // 100)
    ]
    low, high = np.quantile(np.concatenate(drawn), (0.025, 0.975))
    return Interval(float(values.mean()), float(low), float(high), "bootstrap")
