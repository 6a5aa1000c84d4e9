"""Toolsets by name, for an `--env.tools` option."""

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
    """Split `python,shell,http:HOST,HOST`: a comma ends an argument only if a known name follows."""
    names: list[str] = []
    for part in text.split(","):
        is_argument = names and kind_of(names[-1]) in WITH_ARGUMENT and kind_of(part) not in KNOWN
        names[-1:] = [f"{names[-1]},{part}"] if is_argument else [*names[-1:], part.strip()]
    return [name for name in names if name]


def toolsets(names: Iterable[str], packages: Sequence[str] = ()) -> list[object]:
    """Create toolsets for `Env.tools`: `calculator`, `python`, `shell`, `files`, `http:HOST`, `mcp:COMMAND`.

    `python`, `shell` and `files` share one sandbox. `python:docker` picks its backend; `packages` are the
    distributions that its Python can import besides the standard library.
    """
    names = list(names)
    if len(set(names)) < len(names):
        raise ConfigError(f"tools {', '.join(names)}: name each once")
    in_sandbox = [name for name in names if kind_of(name) in KINDS]
    others: list[object] = [toolset(name) for name in names if name not in in_sandbox]
    if packages and not {"python", "shell"} & {kind_of(name) for name in in_sandbox}:
        raise ConfigError(f"packages {', '.join(packages)}: only tools that run code use them; add python or shell")
    return [workspace(in_sandbox, packages), *others] if in_sandbox else others


def where(names: Iterable[str], packages: Sequence[str] = ()) -> str:
    """Describe the sandboxes of these tools in a sentence for `Env.preflight`; "" if none of them needs one.

    Raises ConfigError for an MCP server that cannot be started here.
    """
    names = list(names)
    for name in names:
        if isinstance(server := toolset(name) if kind_of(name) == "mcp" else None, McpServer):
            server.check()
    in_sandbox = [name for name in names if kind_of(name) in KINDS]
    if not in_sandbox:
        return ""
    from agentrl_sandbox import describe

    return f"{', '.join(map(kind_of, in_sandbox))}: in {describe(workspace(in_sandbox, packages).backend, packages)}."


def toolset(name: str) -> object:
    """Create one toolset without starting anything; ConfigError if its name is wrong."""
    kind, colon, argument = name.partition(":")
    if kind in WITH_ARGUMENT and argument.strip():
        return WITH_ARGUMENT[kind](argument.strip())
    if kind in WITH_ARGUMENT:
        raise ConfigError(f"tool {name!r}: it needs an argument; write {kind}:…")
    if kind in PLAIN and colon:
        raise ConfigError(f"tool {name!r}: it takes no argument; write {kind}")
    if kind in PLAIN:
        return PLAIN[kind]()
    raise UnknownNameError("tool", kind, KNOWN)


def workspace(names: list[str], packages: Sequence[str] = ()) -> Workspace:
    """Create the workspace that these tools share; if several name a backend, they must agree."""
    backends = {name.partition(":")[2] for name in names if ":" in name}
    if len(backends) > 1:
        raise ConfigError(f"tools {', '.join(names)}: they share one sandbox; name one backend")
    return Workspace(*map(kind_of, names), backend=backends.pop() if backends else "auto", packages=packages)


def kind_of(name: str) -> str:
    """`http` of `http:HOST`."""
    return name.partition(":")[0].strip()
