"""The `--env.*` keys of an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from agentrl.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from agentrl.env.base import Env


class EnvConfig(BaseModel):
    """The base of every env's `class Config`: unknown keys are refused, values are checked, nothing changes later."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def load_config(env_class: type[Env], options: dict[str, Any]) -> EnvConfig:
    """`options` as the env's config; ConfigError names each bad key and, for an unknown one, the nearest."""
    schema = env_class.Config
    for key in options:
        if key not in schema.model_fields:
            raise UnknownNameError(
                f"key of {env_class.__name__}", f"env.{key}", [f"env.{k}" for k in schema.model_fields]
            )
    try:
        return schema.model_validate(options)
    except ValidationError as error:
        faults = [f"env.{'.'.join(map(str, e['loc'])) or '*'}: {e['msg']}" for e in error.errors(include_url=False)]
        raise ConfigError(f"{env_class.__name__}: {'; '.join(faults)}") from error
