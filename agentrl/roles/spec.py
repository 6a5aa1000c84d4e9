"""Roles as the user set them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentrl.config.schema import RoleKeys
from agentrl.config.tokens import token_in
from agentrl.errors import ConfigError
from agentrl.roles.role import Casting, Player, RoleLimits


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """A role of a run: its name, its keys, and the API key of its endpoint."""

    name: str
    keys: RoleKeys
    api_key: str = field(default="", repr=False)

    def played_by(self, player: Player) -> Casting:
        """Return the role with its player."""
        return Casting(player, RoleLimits(self.keys.max_calls, self.keys.retries), self.keys.timeout_s)


def specs_of(roles: Mapping[str, RoleKeys]) -> dict[str, RoleSpec]:
    """Return the roles with the API keys of this process's environment.

    Raises ConfigError if one is not set or cannot be sent.
    """
    missing = [(name, keys.api_key_env) for name, keys in roles.items() if keys.api_key_env not in (None, *os.environ)]
    for name, variable in missing:
        raise ConfigError(f"roles.{name}.api_key_env: the environment variable {variable} is not set")
    return {name: RoleSpec(name, keys, token_in(keys.api_key_env or "")) for name, keys in roles.items()}
