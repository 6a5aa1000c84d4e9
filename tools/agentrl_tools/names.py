"""Toolsets by name, for an `--env.tools` key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from agentrl.errors import ConfigError, UnknownNameError
from agentrl_tools.calculator import Calculator
from agentrl_tools.http import Http
from agentrl_tools.mcp import McpServer
from agentrl_tools.workspace import Workspace
from agentrl_tools.workspace.workspace import KINDS

PLAIN: dict[str, Callable[[], object]] = {"calculator": Calculator}
WITH_ARGUMENT: dict[str, Callable[[str], object]] = {"http": lambda hosts: Http(hosts.split(",")), "mcp": McpServer}
KNOWN = {**PLAIN, **KINDS, **WITH_ARGUMENT}


def split_names(text: str) -> list[str]:
    """The names in `python,shell,http:HOST,HOST`: a comma inside an argument ends it only where a known name begins."""
    names: list[str] = []
    for part in text.split(","):
        is_argument = names and kind_of(names[-1]) in WITH_ARGUMENT and kind_of(part) not in KNOWN
        names[-1:] = [f"{names[-1]},{part}"] if is_argument else [*names[-1:], part.strip()]
    return [name for name in names if name]


def toolsets(names: Iterable[str], packages: Sequence[str] = ()) -> list[object]:
    """New toolsets, for `Env.tools` to return: `calculator`, `python`, `shell`, `files`, `http:HOST`, `mcp:COMMAND`.

    `python`, `shell` and `files` share one sandbox; `python:docker` says of which backend, and `packages` what its
    Python can import beside the standard library.
    """
    wanted = list(names)
    if len(set(wanted)) < len(wanted):
        raise ConfigError(f"tools {', '.join(wanted)}: name each once")
    in_sandbox = [name for name in wanted if kind_of(name) in KINDS]
    made: list[object] = [toolset(name) for name in wanted if name not in in_sandbox]
    if packages and not {"python", "shell"} & {kind_of(name) for name in in_sandbox}:
        raise ConfigError(f"packages {', '.join(packages)}: they are for tools that run code; name python or shell")
    return [workspace(in_sandbox, packages), *made] if in_sandbox else made


def where(names: Iterable[str], packages: Sequence[str] = ()) -> str:
    """Which sandboxes these tools run things in, as a sentence for `Env.preflight`; "" where none of them does.

    ConfigError for an MCP server that cannot be started here.
    """
    wanted = list(names)
    for name in wanted:
        if isinstance(made := toolset(name) if kind_of(name) == "mcp" else None, McpServer):
            made.check()
    in_sandbox = [name for name in wanted if kind_of(name) in KINDS]
    if not in_sandbox:
        return ""
    from agentrl_sandbox import describe

    return f"{', '.join(map(kind_of, in_sandbox))}: in {describe(workspace(in_sandbox, packages).backend, packages)}."


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
    raise UnknownNameError("tool", kind, KNOWN)


def workspace(names: list[str], packages: Sequence[str] = ()) -> Workspace:
    """The one workspace of all of these; each may name its backend, and then they must agree."""
    backends = {name.partition(":")[2] for name in names if ":" in name}
    if len(backends) > 1:
        raise ConfigError(f"tools {', '.join(names)}: they share one sandbox; name one backend")
    return Workspace(*map(kind_of, names), backend=backends.pop() if backends else "auto", packages=packages)


def kind_of(name: str) -> str:
    """`http` of `http:HOST`."""
    return name.partition(":")[0].strip()
