"""Adapters: environment classes around the environments of other libraries, named by a scheme."""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, version
from itertools import chain
from pathlib import Path
from types import new_class
from typing import ClassVar, Self, cast

from agentrl.env.base import Env
from agentrl.errors import ConfigError
from agentrl.plugins import registry
from agentrl.plugins.kind import BOUND_NAME, Kind

SCHEME = re.compile(r"([a-z][a-z0-9_+-]+):(.*)")


def wraps_of(module: str) -> tuple[str, ...]:
    """Return what `wraps` needs for an imported module by its name: the distributions that contain it.

    Where none has its files, as with an editable installation, its folder or file comes after them.
    """
    top = module.partition(".")[0]
    names = tuple(packages_distributions().get(top, ()))
    files = chain.from_iterable(distribution(name).files or () for name in names)
    if any(file.parts[0] in (top, f"{top}.py") for file in files):
        return names
    whole = sys.modules[top]
    places = getattr(whole, "__path__", None) or [getattr(whole, "__file__", None)]
    return (*names, *(str(Path(place)) for place in places if place))


class Adapter(Env):
    """An environment class for every environment of a foreign library.

    A package announces it under a scheme in the entry-point group `agentrl.adapters`. `--env SCHEME:ID` then names the
    subclass that `bound` returns. `wraps` names the library, which a run records beside the adapter.
    """

    id: ClassVar[str] = ""
    """What follows the scheme."""

    @classmethod
    def bound(cls, name: str) -> type[Adapter]:
        """Return the subclass whose `id` is `name`. Override it to refuse unknown ids or to derive a `Config`."""
        return cls.subclass(name)

    @classmethod
    def subclass(cls, name: str, **members: object) -> type[Self]:
        """Return a subclass with this `id` and these members, for `bound`."""
        body = {"__module__": cls.__module__, "id": name, **members}
        return cast("type[Self]", new_class(cls.__name__, (cls,), exec_body=lambda namespace: namespace.update(body)))


ADAPTERS = Kind[Adapter](
    noun="scheme",
    base=Adapter,
    group="agentrl.adapters",
    argument="env",
    files=(),
    remedy="If a package provides it, install that package. Those of agentrl are in a clone of its repository: "
    "pip install ./adapters/reasoning_gym (rg), ./adapters/gymnasium (gym), ./adapters/openenv (openenv) or "
    "./adapters/textarena (textarena); ./adapters/verifiers (verifiers) needs an interpreter of its own (its README).",
)


def scheme_of(name: str) -> str:
    """Return the scheme of `rg:leg_counting`, "rg"; "" for a name without one, such as `./sums.py:Sums`."""
    match = SCHEME.fullmatch(name)
    return match[1] if match else ""


@cache
def adapted(name: str) -> type[Adapter]:
    """Return the environment class called `SCHEME:ID` or `SCHEME:ID@1.2`, the same one for the same ID.

    Raises UnknownNameError for an unknown scheme or id, and ConfigError without an id or for another version of what is
    wrapped.
    """
    scheme, _, wanted = name.partition(":")
    bare, specifiers = (wanted, "") if "://" in wanted else registry.split_version(wanted)
    if specifiers:
        env_class = adapted(f"{scheme}:{bare}")
        check_version(name, env_class, specifiers)
        return env_class
    adapter = registry.resolve(ADAPTERS, scheme)
    if not wanted:
        raise ConfigError(
            f"environment {name!r}: its id is missing; write {scheme}:ID. An unknown id, such as {scheme}:x, is "
            "refused with the known ones if the library can list them"
        )
    env_class = adapter.bound(wanted)
    setattr(env_class, BOUND_NAME, name)
    return env_class


def check_version(name: str, env_class: type[Adapter], wanted: str) -> None:
    """Raise ConfigError unless the version of the first wrapped distribution meets PEP 440 specifiers."""
    wrapped = next((each for each in env_class.wraps if not Path(each).is_absolute()), "")
    if not wrapped:
        raise ConfigError(f"environment {name!r}: {env_class.__name__} wraps no package; leave the version out")
    try:
        found = version(wrapped)
    except PackageNotFoundError as error:
        raise ConfigError(f"environment {name!r}: {wrapped} is not installed; pip install {wrapped}") from error
    adapter = registry.find(ADAPTERS, scheme_of(name)).distribution
    apart = f", give it an interpreter of its own with `agentrl env add {adapter} --with '{wrapped}{wanted}'`"
    registry.check_version(f"environment {name!r}", wrapped, found, wanted, apart)
