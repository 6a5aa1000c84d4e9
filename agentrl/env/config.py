"""The `--env.*` keys of an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from agentrl.config.schema import Config, Keys
from agentrl.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from agentrl.env.base import Env


class EnvConfig(Keys):
    """The base of every env's `class Config`: unknown keys are refused, values and defaults checked."""

    model_config = ConfigDict(validate_default=True)


LISTS = {"tuple_type", "list_type", "set_type", "frozen_set_type"}
"""What pydantic calls a text in the place of one of these."""


def load_config(env_class: type[Env], options: dict[str, Any]) -> EnvConfig:
    """`options` as the env's config; ConfigError names each bad key and, for an unknown one, the nearest.

    A text where a list or tuple is wanted is one, with commas between its items: `--env.kinds single,multiple`.
    """
    schema = env_class.Config
    for key in options:
        if key not in schema.model_fields:
            above = f"A file has {key} above its first section." if key in Config.model_fields else ""
            known = [f"env.{k}" for k in schema.model_fields]
            raise UnknownNameError(f"key of {env_class.__name__}", f"env.{key}", known, above)
    try:
        try:
            return schema.model_validate(options)
        except ValidationError as error:
            if not (lists := _lists(error)):
                raise
            return schema.model_validate(options | lists)
    except ValidationError as error:
        faults = map(_explained, error.errors(include_url=False))
        raise ConfigError(f"{env_class.__name__}: {'; '.join(faults)}") from error


def _explained(fault: ErrorDetails) -> str:
    """One of pydantic's complaints in the words of a run's own keys: key, what is wrong, what was given."""
    key = ".".join(map(str, ("env", *fault["loc"])))
    if fault["type"] == "missing":
        return f"{key} is required: give --{key} VALUE"
    what = fault["msg"].removeprefix("Value error, ")
    if not fault["loc"]:
        return what
    must = what.replace("Input should", "must", 1)
    return f"{key}{'' if must.startswith('must') else ':'} {must}, got {fault['input']!r} (--{key})"


def _lists(error: ValidationError) -> dict[str, list[str]]:
    """The texts that stand where lists are wanted, as lists."""
    texts = {e["loc"][0]: e["input"] for e in error.errors() if e["type"] in LISTS and len(e["loc"]) == 1}
    return {
        str(key): [item.strip() for item in text.split(",") if item.strip()]
        for key, text in texts.items()
        if isinstance(text, str)
    }
