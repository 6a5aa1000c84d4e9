"""How long an environment may take, and how many turns it has."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from agentrl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Limits:
    """Finite bounds of one environment; every wait for its code ends at one of them."""

    max_turns: int = 1
    load_timeout_s: float = 600.0
    setup_timeout_s: float = 60.0
    turn_timeout_s: float = 60.0
    tool_timeout_s: float = 60.0
    score_timeout_s: float = 60.0
    teardown_timeout_s: float = 30.0
    is_timed: bool = False
    """Time is part of the task: an episode cut by its deadline is scored, not invalid."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "is_timed":
                if not isinstance(value, bool):
                    raise ConfigError(f"Limits.is_timed is {value!r}; give True or False")
                continue
            kinds, what = (int, "a whole number") if field.name == "max_turns" else ((int, float), "a finite number")
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < math.inf:
                raise ConfigError(f"Limits.{field.name} is {value!r}; give {what} above 0")
