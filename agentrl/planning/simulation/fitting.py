"""Fits of seconds to what took them: non-negative coefficients that a few slow steps do not move."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
ROUNDS = 30


def fitted(causes: Array, seconds: Array) -> Array:
    """Return the seconds that each cause takes: non-negative coefficients [K] of `causes` [N, K] for `seconds` [N].

    They minimise the sum of absolute errors, by least squares with weights that are the inverse of the errors before.
    """
    weights, floor = np.ones(len(seconds)), 1e-3 * max(1e-9, float(np.abs(seconds).mean()))
    for _ in range(ROUNDS):
        roots = np.sqrt(weights)
        found = _least_squares(causes * roots[:, None], seconds * roots)
        weights = 1.0 / np.maximum(floor, np.abs(causes @ found - seconds))
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
