"""Learning rate schedules."""

from __future__ import annotations

import math

from agentrl.config.schema import LearnerSection


def learning_rate(section: LearnerSection, update: int, total: int) -> float:
    """Return the rate of update `update` (from 0) of `total`: linear warm-up, then constant, linear or cosine.

    `warmup_steps` counts steps of the run, each of which has `updates_per_batch` updates. A decay reaches
    `min_lr_ratio` of the peak at the last update.
    """
    warmup = section.warmup_steps * section.updates_per_batch
    if update < warmup:
        return section.lr * (update + 1) / warmup
    if section.schedule == "constant":
        return section.lr
    progress = min(1.0, (update - warmup) / max(1, total - 1 - warmup))
    remaining = 1 - progress if section.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return section.lr * (section.min_lr_ratio + (1 - section.min_lr_ratio) * remaining)
