"""Clashes of environments with other packages in one interpreter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from agentrl.env.adapter import ADAPTERS
from agentrl.env.registry import ENVIRONMENTS
from agentrl.errors import ConfigError
from agentrl.packaging.added import Wanted
from agentrl.plugins import registry
from agentrl.plugins.files import is_path
from agentrl.plugins.origins import top_of
from agentrl.plugins.registry import Announced


def check_clashes(names: Iterable[str]) -> None:
    """Raise one ConfigError for environments of this interpreter whose requirements or modules clash here."""
    clashes = [
        f"environment {name!r}: {clash}; install what fits, or give it an interpreter of its own with "
        f"`agentrl env add {item.distribution}=={item.version}`"
        for name in names
        if (item := _announced(name))
        for clash in (*_unmet(item.distribution), *_shared_modules(item))
    ]
    if clashes:
        raise ConfigError("\n".join(clashes))


def _announced(name: str) -> Announced | None:
    if is_path(name):
        return None
    wanted = Wanted.parse(name)
    return registry.known(ADAPTERS if wanted.is_scheme else ENVIRONMENTS, wanted.name)


def _unmet(distribution: str) -> Iterator[str]:
    """Yield the requirements of a distribution, not of its extras, that the installed packages do not meet."""
    for line in requires(distribution) or () if distribution else ():
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            found = ""
        wanted = f"{distribution} needs {requirement.name}{requirement.specifier}"
        if not found:
            yield f"{wanted}, which is not installed"
        elif not requirement.specifier.contains(found, prereleases=True):
            yield f"{wanted}, but {found} is installed"


def _shared_modules(item: Announced) -> Iterator[str]:
    """Yield the distributions that announce a class in the same module: one installation replaced the other's files."""
    module = top_of(item.target)
    every = (*registry.announced(ENVIRONMENTS).values(), *registry.announced(ADAPTERS).values())
    others = {other.distribution for other in every if top_of(other.target) == module and other.distribution}
    for other in sorted(others - {item.distribution}):
        yield f"{item.distribution} and {other} both contain the module {module}"
