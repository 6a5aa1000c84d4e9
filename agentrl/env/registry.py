"""Environment classes by name."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from typing import Any

from agentrl.env.adapter import ADAPTERS, adapted, scheme_of
from agentrl.env.attributes import check_made
from agentrl.env.base import Env
from agentrl.env.config import env_config
from agentrl.env.files.importing import importing
from agentrl.env.files.recognition import ACCEPTED, environment_of
from agentrl.env.messages import short
from agentrl.errors import ConfigError
from agentrl.plugins import registry
from agentrl.plugins.kind import Kind
from agentrl.plugins.registry import Announced

NAME = re.compile(r"(?:(?P<owner>[a-z][a-z0-9]*)/)?(?P<name>[a-z][a-z0-9]*(?:-[a-z0-9]+)*)")
"""Name of an announced environment. The owner has no hyphens, so that the name of a distribution has one meaning."""
ENVIRONMENTS = Kind[Env](
    noun="environment",
    base=Env,
    group="agentrl.envs",
    argument="env",
    files=("env.py", "agent_func.py"),
    remedy="If a package provides it, install it: pip install agentrl-env-{package} (or the name in its README), or "
    "`agentrl env add {name}` for an interpreter of its own.",
    apart=", give it an interpreter of its own with `agentrl env add '{name}'`",
    importing=importing,
    derive=environment_of,
    derived_from=ACCEPTED,
    is_name=NAME.fullmatch,
    naming="NAME or OWNER/NAME with lower-case letters and digits, a letter first, and single hyphens in NAME",
)


def announced() -> dict[str, Announced]:
    """Return every environment that an installed package announces, by name."""
    return registry.announced(ENVIRONMENTS)


def is_address(name: str) -> bool:
    """Return whether a name is the address of a served environment: agentrl://HOST:PORT/NAME, agentrls://HOST/NAME."""
    return name.startswith(("agentrl://", "agentrls://"))


def resolve(name: str) -> type[Env]:
    """Return the environment class called `name`.

    A name is `math`, `owner/name`, `owner/name@1.2`, `scheme:id`, `scheme:id@1.2`, `package:Class`,
    `./agent_func.py[:Class]` or `./folder`. An announced scheme comes before a package of the same name.
    Raises UnknownNameError for an unknown name, and ConfigError for a class that cannot be loaded.
    """
    if is_address(name):
        raise ConfigError(
            f"{name} is the address of an environment that runs elsewhere, and only runs can use it (--env). For "
            "anything else take the machine that serves the environment, and its name there"
        )
    scheme = scheme_of(name)
    if scheme in registry.announced(ADAPTERS):
        return adapted(name)
    own, colon, rest = name.partition(":")
    if rest.startswith("//"):
        raise ConfigError(
            f"{name} is no address of an environment: write agentrl://HOST:PORT/NAME for one of `agentrl env serve`, "
            "or openenv:http://HOST:PORT for a server of OpenEnv"
        )
    if (
        colon
        and own in announced()
        and (own in sys.stdlib_module_names or not (rest.isidentifier() and find_spec(own)))
    ):
        raise ConfigError(
            f"unknown environment {name!r}: {own} is an environment, and {rest!r} no weight for it. Of several "
            f"environments each has a weight above 0, as in {own}:2,other:1; a single one has none"
        )
    if scheme and not find_spec(scheme):
        return adapted(name)
    return registry.resolve(ENVIRONMENTS, name)


def make_env(name: str, **options: Any) -> Env:
    """Make an environment object; `options` are its `--env.*` keys. Raises ConfigError for anything but a name."""
    if not isinstance(name, str):
        kind = f"the class {name.__name__}: call it instead" if isinstance(name, type) else short(name)
        raise ConfigError(f'make_env takes the name of an environment, such as "math" or "./env.py", not {kind}')
    env_class = resolve(name)
    config = env_config(env_class, options)
    env = env_class(config)
    check_made(env, config)
    return env
