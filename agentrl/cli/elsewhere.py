"""Commands about an environment with an interpreter of its own: they run there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agentrl.config.schema import EnvSection
from agentrl.packaging.added import interpreter_of
from agentrl.packaging.inspection import run_module

KEY = "--env.python"


def interpreter(env: EnvSection) -> Path | None:
    """Return the environment's own interpreter: the one that is configured, or that of an added environment."""
    return env.python or interpreter_of(env.name)


def run_there(python: Path, command: str, words: list[str], timeout_s: float) -> int:
    """Run `agentrl env COMMAND WORDS` in an interpreter. Returns the exit code."""
    return run_module(python, "agentrl.__main__", "env", command, *_there(words), timeout_s=timeout_s)


def _there(words: list[str]) -> Iterator[str]:
    """Yield the words without the interpreter, which is that of the process there."""
    rest = iter(words)
    for word in rest:
        if word == KEY:
            next(rest, None)
        elif not word.startswith(f"{KEY}="):
            yield word
