"""Methods that a class body defines twice: Python keeps the last and says nothing."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from textwrap import dedent

PIECES = ("setter", "getter", "deleter", "overload")
"""Decorators of definitions that share a name on purpose."""


def doubled(owner: type) -> list[str]:
    """The names of these methods; none where the source cannot be read."""
    try:
        [body] = ast.parse(dedent(inspect.getsource(owner))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return []
    methods = [node for node in getattr(body, "body", []) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    counts = Counter(node.name for node in methods if not any(map(_is_piece, node.decorator_list)))
    return [name for name, count in counts.items() if count > 1]


def _is_piece(decorator: ast.expr) -> bool:
    return (getattr(decorator, "attr", "") or getattr(decorator, "id", "")) in PIECES
