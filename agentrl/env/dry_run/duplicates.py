"""Methods that a class body defines twice, found by reading its source: Python keeps only the last definition."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

from agentrl.env.definition import authors_classes

SHARED_NAME = {"setter", "getter", "deleter", "overload"}
"""Decorators of definitions that have the same name on purpose."""


def duplicate_methods(env_class: type) -> Iterator[str]:
    """Yield the methods that the author's classes define twice, as 'Mine.a (mine.py:12)'."""
    for owner in authors_classes(env_class):
        try:
            lines, first = inspect.getsourcelines(owner)
            [body] = ast.parse(dedent("".join(lines))).body
        except (OSError, TypeError, SyntaxError, ValueError):
            continue
        seen: set[str] = set()
        for method in getattr(body, "body", []):
            if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) or _shares_name(method):
                continue
            if method.name in seen:
                line = first + method.lineno - 1
                yield f"{owner.__name__}.{method.name} ({Path(inspect.getfile(owner)).name}:{line})"
            seen.add(method.name)


def _shares_name(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any({getattr(item, "attr", ""), getattr(item, "id", "")} & SHARED_NAME for item in method.decorator_list)
