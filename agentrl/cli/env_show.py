"""`agentrl env show NAME`: what one environment offers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain

from agentrl.cli.elsewhere import interpreter, run_there
from agentrl.cli.flags import Parser, split
from agentrl.config.loading import load, of_flags
from agentrl.errors import ConfigError
from agentrl.packaging.description import Description, describe
from agentrl.plugins.tracebacks import call_author
from agentrl.report.words import visible
from agentrl.types import Message, text_of

SHOW_S = 600.0


def run(words: list[str]) -> int:
    """Print the keys, limits, rewards, tools, tasks, source and first task of an environment."""
    parser = Parser(
        prog="agentrl env show",
        usage="agentrl env show NAME [--env.KEY VALUE ...]",
        description="Show what an environment offers; starts an episode of its first task.",
    )
    parser.add_argument("name", metavar="NAME", help="an installed environment, a file or a folder")
    own, pairs = split(words)
    name = parser.parse_args(own).name
    if wrong := [key for key, _ in pairs if not key.startswith("env.") or key == "env.name"]:
        raise ConfigError(f"--{wrong[0]} has no effect here: give keys of the environment, as in --env.KEY VALUE")
    for env in load(None, of_flags([("env", name), *pairs])).env:
        if python := interpreter(env):
            print(f"interpreter: {python}", flush=True)
            return run_there(python, "show", words, SHOW_S)
        found = call_author(f"environment {env.name!r} cannot be shown", asyncio.run, describe(env.name, env.options))
        print(visible("\n".join(_lines(found))))
    return 0


def _lines(found: Description) -> Iterator[str]:
    source = found.source
    versions = {source.distribution: source.version} | {one.distribution: one.version for one in source.wraps}
    packages = ", ".join(f"{distribution} {version}" for distribution, version in versions.items() if version)
    yield f"{source.name} ({packages})" if packages else source.name
    if found.summary:
        yield found.summary
    yield from _block("class", [found.target])
    yield from _block("source", [str(found.path), f"sha256 {source.sha256}, {len(source.files)} files"])
    yield from _block("machine", [found.machine])
    keys = (
        (f"{key.name}: {key.type} " + (f"= {key.value}" if key.value else "(not set)"), f"    {key.meaning}")
        for key in found.keys
    )
    yield from _block("keys", list(chain.from_iterable(keys)))
    yield from _block("limits", _columns([(name, str(value)) for name, value in asdict(found.limits).items()]))
    rewards = [(item.name, f"weight {item.weight:g}", f"per {item.scope}") for item in found.rewards]
    yield from _block("rewards", _columns(rewards) or ["computed by score(ctx)"])
    for tool in found.start.tools:
        yield from _block(f"tool {tool['name']}", [tool["description"], json.dumps(tool["parameters"])])
    sizes = [(name, "endless" if size is None else f"{size:,} tasks") for name, size in found.sizes.items()]
    yield from _block("splits", _columns(sizes))
    yield from _block("first task", [found.task_id])
    for message in found.start.messages:
        yield from _block(message["role"], _said(message) or ["(empty)"])


def _block(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield f"\n{title}"
        yield from (f"  {line}" for line in lines)


def _said(message: Message) -> list[str]:
    """Return the lines of a message's text, and one for each of its tool calls."""
    called = [call["function"] for call in message.get("tool_calls") or ()]
    calls = [f"{call['name']}({json.dumps(call['arguments'], ensure_ascii=False)})" for call in called]
    return [*text_of(message).splitlines(), *calls]


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the rows as lines whose columns are aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
