"""Algorithm classes by name."""

from __future__ import annotations

from agentrl.algorithms.base import Algorithm, RunShape
from agentrl.algorithms.grpo import GRPO
from agentrl.algorithms.reinforce_pp import ReinforcePP
from agentrl.algorithms.rloo import RLOO
from agentrl.config.schema import AlgorithmSection
from agentrl.errors import UnknownNameError


def algorithms() -> dict[str, type[Algorithm]]:
    """Return the algorithms of agentrl by name."""
    return {cls.name: cls for cls in (GRPO, RLOO, ReinforcePP)}


def resolve(name: str) -> type[Algorithm]:
    """Return the algorithm class called `name`. Raises UnknownNameError, which suggests the nearest known name."""
    known = algorithms()
    if name not in known:
        raise UnknownNameError("algorithm", name, known)
    return known[name]


def make_algorithm(section: AlgorithmSection, run: RunShape | None = None) -> Algorithm:
    """Return the algorithm of a run with its configuration."""
    cls = resolve(section.name)
    return cls(cls.Config.model_validate(section.options), run)
