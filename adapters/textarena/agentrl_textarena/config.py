"""Keys and tasks that all games have."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import Field

from agentrl.env import EnvConfig, Task

TEST_TASKS = 100


class TextArenaConfig(EnvConfig):
    """The `--env.*` keys of every game; the game's own settings come after them."""

    turns: int = Field(30, ge=1, description="turns of one episode, of all players together")


def keys_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a game's settings by name. A limit of turns has a bound; the game checks the others."""
    return {
        key: (type(value), Field(value, ge=1 if key == "max_turns" else None))
        for key, value in settings.items()
        if key not in TextArenaConfig.model_fields
    }


def set_keys(config: TextArenaConfig) -> dict[str, Any]:
    """Return the settings of the game that the user set."""
    return {key: getattr(config, key) for key in config.model_fields_set - TextArenaConfig.model_fields.keys()}


def tasks_of(split: str) -> list[Task] | Callable[[random.Random], Task]:
    """Return endless seeds for "train", which are even, and a hundred odd ones for "test"."""
    if split == "test":
        return [seeded(2 * number + 1) for number in range(TEST_TASKS)]
    return lambda rng: seeded(2 * rng.getrandbits(30))


def seeded(seed: int) -> Task:
    """Return the game that begins with this seed."""
    return Task(str(seed), seed)
