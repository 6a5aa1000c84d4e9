"""Fits of seconds to what took them: non-negative coefficients that a few slow steps do not move."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
ROUNDS = 30


def fitted(causes: Array, seconds: Array, doubtful: Sequence[bool], samples: int) -> Array:
    """Return the seconds that each cause takes: non-negative coefficients [K] of `causes` [N, K] for `seconds` [N].

    They minimise the sum of absolute errors, by least squares with weights that are the inverse of the errors before.
    Causes that nearly always go together cannot be told apart amid errors: those that are not `doubtful` then get
    everything. For that the others have a normal prior around 0, as wide as if they took all the seconds. The errors
    are those of so many independent `samples`: rows that were measured at the same time err together.
    """
    weights, prior = np.ones(len(seconds)), np.zeros((causes.shape[1], causes.shape[1]))
    mean_s = max(1e-9, float(np.abs(seconds).mean()))
    shares = np.diag(np.abs(causes).mean(axis=0) * np.array(doubtful) / mean_s)
    for _ in range(ROUNDS):
        roots = np.sqrt(weights)
        rows = np.concatenate([causes * roots[:, None], prior])
        found = _least_squares(rows, np.concatenate([seconds * roots, np.zeros(len(prior))]))
        errors = np.abs(causes @ found - seconds)
        weights = 1.0 / np.maximum(1e-3 * mean_s, errors)
        prior = shares * np.sqrt(errors.mean() * len(seconds) / samples / 2)
    return found


def _least_squares(causes: Array, seconds: Array) -> Array:
    """Return the best non-negative coefficients: those of the best set of causes that has only such ones."""
    count = causes.shape[1]
    best, error = np.zeros(count), float(seconds @ seconds)
    for size in range(1, count + 1):
        for chosen in map(list, itertools.combinations(range(count), size)):
            part, *_ = np.linalg.lstsq(causes[:, chosen], seconds, rcond=None)
            residual = float(np.sum((causes[:, chosen] @ part - seconds) ** 2))
            if np.all(part >= 0) and residual < error * (1 - 1e-12):
                best, error = np.zeros(count), residual
                best[chosen] = part
    return best
