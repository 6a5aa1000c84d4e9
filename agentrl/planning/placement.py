"""What the algorithm of a run decides where no key does: epochs, and the place of each role that the run has."""

from __future__ import annotations

from agentrl.algorithms.base import RunShape
from agentrl.algorithms.registry import make_algorithm, with_epochs
from agentrl.config.schema import Config
from agentrl.errors import ConfigError

PLACES = {"critic": "colocate", "scorers": "colocate", "reward": "separate"}
"""Where roles are unless a key says otherwise."""


def for_algorithm(config: Config, *, learns: bool = True) -> Config:
    """Return the configuration with the epochs and the places that its algorithm decides."""
    return placed(with_epochs(config) if learns else config, learns=learns)


def placed(config: Config, *, learns: bool = True) -> Config:
    """Return the configuration with a place for each role that it has, and for engines if a word says.

    A role's own key wins over `placement`.
    """
    word = config.placement
    chosen = {"engine": word} | {role: PLACES[role] if word == "auto" else word for role in _roles(config, learns)}
    return config.model_copy(
        update={
            role: section.model_copy(update={"placement": place})
            for role, place in chosen.items()
            if (section := getattr(config, role)).placement in (None, "auto") and place != "auto"
        }
    )


def _roles(config: Config, learns: bool) -> list[str]:
    """Return the sections of the models beside the policy that the run has."""
    rewards = ["reward"] * bool(config.reward.served)
    if not learns:
        return rewards
    try:
        algorithm = make_algorithm(config.algorithm, RunShape.of(config))
    except ConfigError:  # which the check of the run's inputs explains
        return rewards
    has_frozen = bool(algorithm.frozen_columns(has_adapters=bool(config.lora.rank)))
    return ["critic"] * ("values" in algorithm.requirements.columns) + ["scorers"] * has_frozen + rewards
