"""Algorithm classes by name."""

from __future__ import annotations

from agentrl.algorithms.base import Algorithm, RunShape
from agentrl.algorithms.cispo import CISPO
from agentrl.algorithms.dapo import DAPO
from agentrl.algorithms.dr_grpo import DrGRPO
from agentrl.algorithms.gigpo import GiGPO
from agentrl.algorithms.grpo import GRPO
from agentrl.algorithms.gspo import GSPO
from agentrl.algorithms.reinforce_pp import ReinforcePP
from agentrl.algorithms.reinforce_pp_baseline import ReinforcePPBaseline
from agentrl.algorithms.remax import ReMax
from agentrl.algorithms.rloo import RLOO
from agentrl.config.schema import AlgorithmSection
from agentrl.errors import UnknownNameError


def algorithms() -> dict[str, type[Algorithm]]:
    """Return the algorithms of agentrl by name."""
    return {
        cls.name: cls for cls in (GRPO, DrGRPO, DAPO, GSPO, CISPO, RLOO, ReinforcePP, ReinforcePPBaseline, ReMax, GiGPO)
    }


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
