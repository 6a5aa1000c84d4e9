"""Changes of a recorded run's configuration that a simulation can follow, and the threads that follow from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentrl.algorithms.configured import configured_algorithm
from agentrl.config.keys import keys, value_of
from agentrl.config.loading import load, of_arguments
from agentrl.config.resolve import threads_of
from agentrl.config.schema import Config
from agentrl.config.validate import check_layout
from agentrl.errors import ConfigError

SIMULATED = re.compile(
    r"rollout\.(max_staleness|on_stale|prompts|group_size|workers|concurrency)|"
    r"engine\.(count|threads|max_num_seqs|prefix_caching|placement)|learner\.(ranks|threads)"
)
"""Keys that change who waits for whom, but neither the episodes nor the work of a token."""
THREADS = ("engine.threads", "learner.threads")
CHOSEN = ("engine.count", "learner.ranks", *THREADS)
"""Keys at which 0 leaves the number to the machine of a run."""


def changed(recorded: Config, changes: Mapping[str, Any], cores: int = 0) -> Config:
    """Return the recorded configuration with other values for some keys, on a machine with so many CPU cores.

    `cores` 0: as many as the recorded machine. Raises ConfigError for keys that a simulation cannot follow, and for
    what a run refuses: layouts, and groups that are too small for the algorithm.
    """
    config = load(recorded, of_arguments(changes))
    if unknown := [key for key in changes if not SIMULATED.fullmatch(key)]:
        known = ", ".join(key for key in keys() if SIMULATED.fullmatch(key))
        raise ConfigError(
            f"a simulation repeats the recorded episodes and cannot follow {', '.join(unknown)}: record a run with "
            f"that setting. It follows {known}"
        )
    if unset := [key for key in CHOSEN if value_of(config, key) == 0]:
        raise ConfigError(
            f"{unset[0]} 0 lets a run choose the number for its machine, which a simulation does not: set {unset[0]} "
            "to 1 or more, or leave it as it was recorded"
        )
    is_by_rule = recorded == with_threads(recorded, cores_of(recorded))
    if config.device == "cpu" and is_by_rule and not any(key in changes for key in THREADS):
        config = with_threads(config, cores or cores_of(recorded))
    check_layout(config)
    configured_algorithm(config)
    return config


def cores_of(config: Config) -> int:
    """Return how many CPU cores a run used, by its threads."""
    engine, learner = config.engine, config.learner
    ranks = learner.ranks + config.critic.separate_ranks(learner)
    return max(engine.count * engine.threads, ranks * learner.threads) * (2 if config.rollout.max_staleness else 1)


def with_threads(config: Config, cores: int) -> Config:
    """Return the configuration with the threads that a run on a CPU with so many cores chooses."""
    numbers = zip(("engine", "learner"), threads_of(config, cores), strict=True)
    sections = {name: getattr(config, name).model_copy(update={"threads": number}) for name, number in numbers}
    return config.model_copy(update=sections)
