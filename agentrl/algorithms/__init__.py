"""Algorithms compute advantages from trajectories: one class in one file each. None of them imports torch."""

from __future__ import annotations

from agentrl.algorithms.base import Algorithm
from agentrl.algorithms.grpo import GRPO
from agentrl.algorithms.reinforce_pp import ReinforcePP
from agentrl.algorithms.rloo import RLOO
from agentrl.errors import UnknownNameError


def algorithms() -> dict[str, type[Algorithm]]:
    """Return all algorithms by name."""
    return {cls.name: cls for cls in (GRPO, RLOO, ReinforcePP)}


def algorithm(name: str) -> Algorithm:
    """Return the algorithm of that name. Raises UnknownNameError, which suggests the nearest known name."""
    known = algorithms()
    if name not in known:
        raise UnknownNameError("algorithm", name, known)
    return known[name]()
