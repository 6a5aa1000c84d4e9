"""Learning rate schedules."""

from __future__ import annotations

import math

from agentrl.config.schema import LearnerSection


def learning_rate(section: LearnerSection, update: int, steps: int) -> float:
    """Return the rate of update `update` (from 0) of a run of `steps`: linear warm-up, then constant, linear or cosine.

    Each step has `section.updates` updates. A decay reaches `min_lr_ratio` of the peak at the last update.
    """
    warmup, total = section.warmup_steps * section.updates, steps * section.updates
    if update < warmup:
        return section.lr * (update + 1) / warmup
    if section.schedule == "constant":
        return section.lr
    progress = min(1.0, (update - warmup) / max(1, total - 1 - warmup))
    remaining = 1 - progress if section.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return section.lr * (section.min_lr_ratio + (1 - section.min_lr_ratio) * remaining)
