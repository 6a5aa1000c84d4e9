"""The check of a run's roles: each is declared and has a player, whose endpoint answers or whose model exists."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from agentrl.config.models import check_context, locate
from agentrl.config.schema import Config, EnvSection
from agentrl.env.driver.loop import run_on_private_loop
from agentrl.errors import ConfigError, RoleError, UnknownNameError
from agentrl.roles.remote import Players
from agentrl.roles.spec import RoleSpec, specs_of

CHECK_S = 20.0
"""Time in which an endpoint has to answer something short."""


def check_roles(config: Config, declared: Sequence[Mapping[str, str]]) -> None:
    """Raise ConfigError for a role without a player, for one that no environment has, or that does not answer.

    `declared` are the roles of each of `config.env`, with their meanings.
    """
    known = {name for roles in declared for name in roles}
    for name in config.roles:
        _check_known(name, known, "the environments of this run")
        if all(name in (env.roles or {}) for env, roles in zip(config.env, declared, strict=True) if name in roles):
            raise ConfigError(f"roles.{name}: every environment that asks it has its own: leave that of the run out")
    asked: set[RoleSpec] = set()
    for env, roles in zip(config.env, declared, strict=True):
        asked |= _specs(config, env, roles)
    for spec in asked:
        if spec.keys.is_served:
            _check_model(spec, spec.keys.max_context or config.model.max_context)
    if remote := [spec for spec in asked if spec.keys.url]:
        run_on_private_loop(_check_endpoints(remote))


def _specs(config: Config, env: EnvSection, declared: Mapping[str, str]) -> set[RoleSpec]:
    """Return the roles of one environment as they are set."""
    given = config.roles_of(env)
    for name in env.roles or {}:
        _check_known(name, declared, env.label)
    for name, meaning in declared.items():
        if name not in given:
            about = f" ({meaning})" if meaning else ""
            raise ConfigError(
                f"{env.label} asks the role {name!r}{about}, which nobody plays: set roles.{name}.url and "
                f"roles.{name}.model to those of an endpoint, or roles.{name}.model to a folder, a hub id, or policy"
            )
    return set(specs_of({name: given[name] for name in declared}).values())


def _check_model(spec: RoleSpec, max_context: int) -> None:
    """Raise ConfigError if the run cannot serve the model of a role."""
    try:
        check_context(locate(spec.keys.model), max_context, f"roles.{spec.name}.max_context")
    except ConfigError as error:
        raise ConfigError(f"roles.{spec.name}.model: {error}. An endpoint needs roles.{spec.name}.url too") from error


def _check_known(name: str, known: Iterable[str], whose: str) -> None:
    if name not in known:
        raise UnknownNameError("role", name, known, f"It is none of {whose}: leave roles.{name} out.")


async def _check_endpoints(specs: Iterable[RoleSpec]) -> None:
    quick = Players()
    try:
        await asyncio.gather(*(_check_endpoint(quick, spec) for spec in specs))
    finally:
        await quick.aclose()


async def _check_endpoint(players: Players, spec: RoleSpec) -> None:
    keys = spec.keys.model_copy(update={"timeout_s": min(spec.keys.timeout_s, CHECK_S)})
    try:
        await players.of(RoleSpec(spec.name, keys, spec.api_key)).check()
    except RoleError as error:
        raise ConfigError(f"{error}. Check roles.{spec.name}.url, .model and .api_key_env") from error
