"""The learning rate of each update."""

from __future__ import annotations

import math

from agentrl.config.schema import LearnerSection


def rate(section: LearnerSection, update: int, total: int) -> float:
    """The rate of update number `update` (from 0) of `total`: linear warm-up, then constant, linear or cosine decay.

    The warm-up counts steps of the run, each of `updates_per_batch` updates. The decay ends at `min_lr_ratio` of the
    peak with the last update.
    """
    warmup = section.warmup_steps * section.updates_per_batch
    if update < warmup:
        return section.lr * (update + 1) / warmup
    if section.schedule == "constant":
        return section.lr
    done = min(1.0, (update - warmup) / max(1, total - 1 - warmup))
    left = 1 - done if section.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return section.lr * (section.min_lr_ratio + (1 - section.min_lr_ratio) * left)
