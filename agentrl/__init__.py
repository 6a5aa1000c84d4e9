"""agentrl: reinforcement learning for language-model agents, centred on environment plugins."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentrl import algorithms as algorithms
    from agentrl import env as env
    from agentrl import errors as errors
    from agentrl import types as types
    from agentrl.config.schema import Config
    from agentrl.report.export import export
    from agentrl.report.run import Run
    from agentrl.training.api import evaluate, load_config, resume, train

__all__ = ["Config", "Run", "__version__", "evaluate", "export", "load_config", "resume", "train"]
__version__ = "0.1.0"

_HOMES = {
    "Config": "agentrl.config.schema",
    "Run": "agentrl.report.run",
    "evaluate": "agentrl.training.api",
    "export": "agentrl.report.export",
    "load_config": "agentrl.training.api",
    "resume": "agentrl.training.api",
    "train": "agentrl.training.api",
}
"""Each name and its module, which is imported when the name is first used."""
_MODULES = ("algorithms", "env", "errors", "types")
"""Modules of this package that are attributes without an import."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"agentrl.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'agentrl' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
