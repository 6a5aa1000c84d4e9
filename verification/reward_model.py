"""Scores of a reward model on a GPU, against the CPU."""

from __future__ import annotations

from agentrl.reward_models.classifier import Classifier
from tests.tiny import tiny_reward_model
from verification.check import Setting, largest, within

BOUND = 1e-4


def scores(setting: Setting) -> str:
    """Compare the scores of rows of different lengths, which are padded."""
    folder = str(tiny_reward_model(setting.folder / "model"))
    rows = [[3 + (7 * row + place) % 300 for place in range(5 + 9 * row)] for row in range(8)]
    found, expected = (Classifier(folder, device, "float32").scores(rows) for device in (setting.device, "cpu"))
    error = largest(abs(one - other) for one, other in zip(found, expected, strict=True))
    return (
        f"{len(rows)} scores within {within('the error of a score', error, BOUND):.1e} of the CPU's (bound {BOUND:g})"
    )
