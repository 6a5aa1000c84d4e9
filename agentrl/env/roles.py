"""`@role`: models that an environment asks beside the policy, such as a judge or a simulated user."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, overload

from agentrl.endpoint import POLICY
from agentrl.errors import ConfigError, EnvError
from agentrl.roles import Role
from agentrl.types import Message

StandIn = Callable[[Any, list[Message]], Message | str | Awaitable[Message | str]]
"""A method that replies to a conversation in the place of a model."""


class DeclaredRole:
    """Declaration of a role. Before an episode begins, the driver sets its `Role` on the author's object."""

    def __init__(self, stand_in: StandIn) -> None:
        self.stand_in = stand_in
        self.__doc__ = stand_in.__doc__

    @overload
    def __get__(self, env: None, owner: type) -> DeclaredRole: ...
    @overload
    def __get__(self, env: object, owner: type) -> Role: ...
    def __get__(self, env: object | None, owner: type) -> DeclaredRole | Role:
        if env is None:
            return self
        name = f"{owner.__name__}.{self.stand_in.__name__}"
        raise EnvError(f"@role {name} is not available yet: it can be asked from setup to the rewards of an episode")


def role(stand_in: StandIn) -> DeclaredRole:
    """Declare a model that episodes ask: `await self.judge.ask(...)`; its name is the name of the method.

    A run says with `roles.NAME` which model plays it. Where no model does, in checks, tests and `play`, this method
    replies in its place to a list of messages; its docstring says what the role is for.
    """
    if not inspect.isfunction(stand_in):
        raise ConfigError(f"@role on {stand_in!r}: it marks a plain method and has no options")
    if stand_in.__name__ == POLICY:
        raise ConfigError(f"@role {POLICY}: this is the name of the trained model; rename it, for example opponent")
    return DeclaredRole(stand_in)


def roles_of(env_class: type) -> dict[str, DeclaredRole]:
    """Return the roles of a class by name, in the order of definition, base classes first."""
    names = dict.fromkeys(name for base in reversed(env_class.__mro__) for name in vars(base))
    found = {name: inspect.getattr_static(env_class, name) for name in names}
    return {name: value for name, value in found.items() if isinstance(value, DeclaredRole)}
