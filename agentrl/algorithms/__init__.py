"""Algorithms: trajectories become advantages. One file, one class each; `losses` holds the loss functions they name."""

from __future__ import annotations

from agentrl.algorithms.base import Algorithm
from agentrl.algorithms.grpo import GRPO
from agentrl.algorithms.reinforce_pp import ReinforcePP
from agentrl.algorithms.rloo import RLOO
from agentrl.errors import UnknownNameError


def algorithms() -> dict[str, type[Algorithm]]:
    """Every algorithm by its name."""
    return {cls.name: cls for cls in (GRPO, RLOO, ReinforcePP)}


def algorithm(name: str) -> Algorithm:
    """The algorithm of that name; raises UnknownNameError with the nearest known one."""
    known = algorithms()
    if name not in known:
        raise UnknownNameError("algorithm", name, known)
    return known[name]()
