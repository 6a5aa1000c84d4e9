"""The program in a turn: its last Python block, else the whole text where it is a program."""

import ast
import re

from agentrl_code.scripts import parse

_OPENED, _CLOSED = "<think>", "</think>"
_BLOCK = re.compile(r"^[ \t]*```[ \t]*(\w*)[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_PYTHON = ("python", "py", "python3")


def extract(text: str) -> str | None:
    """The program; None when there is none. What stands in a think block, closed or not, is no answer.

    A block that is not closed reaches to the end. Blocks marked as Python go before blocks without a mark.
    """
    said = text.rpartition(_CLOSED)[2]
    if _OPENED in said:
        return None
    blocks = [(match[1].lower(), match[2]) for match in _BLOCK.finditer(said)]
    for names in (_PYTHON, ("",)):
        if found := [code for name, code in blocks if name in names and code.strip()]:
            return found[-1]
    return said if not blocks and is_program(said) else None


def is_program(text: str) -> bool:
    """Whether this is Python that does something: a lone word is Python too."""
    try:
        body = parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.Name)) for node in body)


def defines(text: str, name: str) -> bool:
    """Whether this program binds `name` at its top level."""
    try:
        body = parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(name in _names(node) for node in body)


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
