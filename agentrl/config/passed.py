"""Options of libraries that a run passes on: those that the library has, and that no key of the run sets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from agentrl.errors import ConfigError, nearest


def check_passed(
    table: str, options: Iterable[str], owner: str, known: Collection[str], keys: Mapping[str, str]
) -> None:
    """Raise ConfigError for an option of `table` that `owner` does not have, or that a key of the run sets."""
    for name in options:
        if name not in known:
            raise ConfigError(f"{table} sets {name}, which {owner} does not have.{nearest(name, known)}")
        if key := keys.get(name):
            raise ConfigError(f"{table} sets {name}, which {key} does: set that key instead")
