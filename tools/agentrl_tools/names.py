"""Toolsets by name, for an `--env.tools` key."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agentrl.errors import ConfigError, UnknownNameError
from agentrl_tools.calculator import Calculator
from agentrl_tools.http import Http
from agentrl_tools.mcp import McpServer

PLAIN: dict[str, Callable[[], object]] = {"calculator": Calculator}
WITH_ARGUMENT: dict[str, Callable[[str], object]] = {"http": lambda hosts: Http(hosts.split(",")), "mcp": McpServer}


def toolsets(names: Iterable[str]) -> list[object]:
    """New toolsets, for `Env.tools` to return: `calculator`, `http:HOST,HOST`, `mcp:COMMAND`, `mcp:URL`."""
    return [toolset(name) for name in names]


def toolset(name: str) -> object:
    """One toolset; ConfigError says what is wrong with its name. Nothing is started yet."""
    kind, colon, argument = name.partition(":")
    if kind in WITH_ARGUMENT and argument.strip():
        return WITH_ARGUMENT[kind](argument.strip())
    if kind in WITH_ARGUMENT:
        raise ConfigError(f"tool {name!r}: write {kind}:…, with what it is to use")
    if kind in PLAIN and colon:
        raise ConfigError(f"tool {name!r}: write {kind}, it takes nothing more")
    if kind in PLAIN:
        return PLAIN[kind]()
    raise UnknownNameError("tool", kind, {**PLAIN, **WITH_ARGUMENT})
