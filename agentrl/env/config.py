"""Configuration and limits of an environment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Protocol, TypeAlias

from pydantic import AfterValidator, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from agentrl.config.schema import Config, Keys
from agentrl.errors import ConfigError, UnknownNameError

LIST_ERRORS = {"tuple_type", "list_type", "set_type", "frozen_set_type"}
"""pydantic's error types for a value that should be one of these."""


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
    schema = env_class.Config
    for key in options:
        if key not in schema.model_fields:
            above = f"A file has {key} above its first section." if key in Config.model_fields else ""
            known = [f"env.{k}" for k in schema.model_fields]
            raise UnknownNameError(f"key of {env_class.__name__}", f"env.{key}", known, above)
    try:
        return _validated(schema, options)
    except ValidationError as error:
        faults = map(_explained, error.errors(include_url=False))
        raise ConfigError(f"{env_class.__name__}: {'; '.join(faults)}") from error


def _validated(schema: type[EnvConfig], options: Mapping[str, Any]) -> EnvConfig:
    try:
        return schema.model_validate(options)
    except ValidationError as error:
        if not (lists := _split_lists(error)):
            raise
        return schema.model_validate({**options, **lists})


def _split_lists(error: ValidationError) -> dict[str, list[str]]:
    """Return the strings that were given for list fields, split at their commas."""
    texts = {e["loc"][0]: e["input"] for e in error.errors() if e["type"] in LIST_ERRORS and len(e["loc"]) == 1}
    return {
        str(key): [item.strip() for item in text.split(",") if item.strip()]
        for key, text in texts.items()
        if isinstance(text, str)
    }


def _explained(fault: ErrorDetails) -> str:
    """Return a pydantic error in the words of a run's own keys: the key, what is wrong, and the value."""
    key = ".".join(map(str, ("env", *fault["loc"])))
    if fault["type"] == "missing":
        return f"{key} is required: give --{key} VALUE"
    what = fault["msg"].removeprefix("Value error, ")
    if not fault["loc"]:
        return what
    must = what.replace("Input should", "must", 1)
    return f"{key}{'' if must.startswith('must') else ':'} {must}, got {fault['input']!r} (--{key})"
