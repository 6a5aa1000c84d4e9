"""Configuration and limits of an environment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Protocol, TypeAlias

from pydantic import AfterValidator, ConfigDict

from agentrl.config.options import checked_options
from agentrl.config.schema import EnvSection, Keys
from agentrl.errors import ConfigError, UnknownNameError


class EnvConfig(Keys):
    """Base of every environment's `class Config`: rejects unknown keys and validates values and defaults."""

    model_config = ConfigDict(validate_default=True)


def _check_question(template: str) -> str:
    if template and "{question}" not in template:
        raise ValueError("does not contain {question}; add it where the question belongs")
    return template


QuestionTemplate: TypeAlias = Annotated[str, AfterValidator(_check_question)]
"""Type of a config key for a user message that contains `{question}`, or is empty for a default."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits of one environment's code, and its number of turns. All are finite."""

    max_turns: int = 1
    load_timeout_s: float = 600.0
    setup_timeout_s: float = 60.0
    turn_timeout_s: float = 60.0
    tool_timeout_s: float = 60.0
    score_timeout_s: float = 60.0
    teardown_timeout_s: float = 30.0
    is_timed: bool = False
    """Time is part of the task: an episode that reaches its deadline is scored instead of dropped."""

    def __new__(cls, *_: object, **given: object) -> Limits:
        """Raise UnknownNameError for a field that does not exist."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise UnknownNameError("field of Limits", name, known)
        return object.__new__(cls)

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


class HasConfig(Protocol):
    """What this module needs of an environment class, which `agentrl.env.base` defines with its help."""

    Config: ClassVar[type[EnvConfig]]


def env_config(env_class: type[HasConfig], options: Mapping[str, Any]) -> EnvConfig:
    """Validate `options` as the configuration of an environment class.

    A comma-separated string is accepted for list and tuple fields: `--env.kinds single,multiple`. Raises ConfigError
    that names each invalid key and, for an unknown key, the nearest known one.
    """
    return checked_options(env_class.Config, options, "env", env_class.__name__, EnvSection.model_fields)
