"""Scores with intervals: pass@k without bias, uncertainty by task, and means over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Method = Literal["wilson", "bootstrap", "t", "none"]

Z = 1.959964
# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom; beyond, the normal one with Fisher's term.
T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval, and how the interval was made (none: nothing to estimate it from)."""

    mean: float
    low: float
    high: float
    method: Method

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def pass_at_k(correct: int, samples: int, k: int) -> float:
    """The chance that at least one of k samples is right, given `correct` right ones of `samples`, without bias.

    1 - C(n - c, k) / C(n, k) (Chen et al. 2021, arXiv:2107.03374). Raises ValueError when k > samples.
    """
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs at least {max(k, 1)} samples of a task; there are {samples}")
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def score(correct: Sequence[int], samples: Sequence[int], k: int = 1, seed: int = 0) -> Interval:
    """pass@k over tasks, task i with `correct[i]` right ones of `samples[i]`; tasks without k samples are left out.

    Samples of one task are alike, so the task is the unit: the interval is a percentile bootstrap over tasks (10,000
    resamples). Where each task gives a single 0 or 1 (one sample, or all tasks alike, which a bootstrap would call
    certain) Wilson's interval over the tasks applies: exact enough for few tasks and never empty.
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
    """The percentile bootstrap of the mean of independent scores."""
    random = np.random.default_rng(seed)
    values = np.asarray(scores, dtype=np.float64)
    drawn = [
        values[random.integers(len(values), size=(100, len(values)))].mean(axis=1) for _ in range(resamples // 100)
    ]
    low, high = np.quantile(np.concatenate(drawn), (0.025, 0.975))
    return Interval(float(values.mean()), float(low), float(high), "bootstrap")


def over_seeds(scores: Sequence[float]) -> Interval:
    """The mean over independent runs with Student's t interval; one run alone has none."""
    mean = statistics.fmean(scores)
    if len(scores) < 2:
        return Interval(mean, mean, mean, "none")
    freedom = len(scores) - 1
    quantile = T[freedom - 1] if freedom <= len(T) else Z + (Z**3 + Z) / (4 * freedom)
    half = quantile * statistics.stdev(scores) / math.sqrt(len(scores))
    return Interval(mean, mean - half, mean + half, "t")
