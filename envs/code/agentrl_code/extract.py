"""The program in a turn: its last Python block, else the whole text where it is a program."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any

import re2

from agentrl_code.scripts import parse

_OPENED, _CLOSED = "<think>", "</think>"
_FENCE, _BLANKS = "```", " \t"
_PYTHON = ("python", "py", "python3")
_MOST_LANGUAGE = 20
MOST_PARSED = 1 << 14
"""Characters of a text that is parsed here, which takes up to 17 microseconds for each: `f"{a}{a}…"`.

Of a longer one the lines that begin a statement are looked at; the sandbox finds out whether it is a program.
"""
_MOST_READ = 64
"""Texts whose reading is kept: the answers and programs of an episode are read by several questions."""
_ACCENTS: Any = re2.compile(r"[\pM\x{FF9E}\x{FF9F}]+")
_NAME = r"[\pL_][\pL\pN_]*"
_STATEMENT: Any = re2.compile(
    rf"(?m)^(?:(?:async +)?(?:def|class) +({_NAME})[(:]|({_NAME}) *(?::[^=\n]*)?=(?:[^=]|$)|(?:import|from) +{_NAME}"
    rf"|(?:for|while|if|with|try)\b.*:|@{_NAME}|{_NAME}(?:\.{_NAME})*\()"
)
"""How a line begins or reads which is not indented and does something; the names are those that it binds."""
_MOST_ACCENTS = 100
"""In a row: Python puts those of a name in order, which takes the square of their number."""


def extract(text: str) -> str | None:
    """The program; None when there is none. What stands in a think block, closed or not, is no answer.

    A block that is not closed reaches to the end. Blocks marked as Python go before blocks without a mark.
    """
    said = text.rpartition(_CLOSED)[2]
    if _OPENED in said:
        return None
    blocks = list(_blocks(said))
    for names in (_PYTHON, ("",)):
        if found := [code for name, code in blocks if name in names and code.strip()]:
            return found[-1]
    return said if not blocks and is_program(said) else None


def is_program(text: str) -> bool:
    """Whether this is Python that does something: a lone word is Python too."""
    return _read(text).does_something


def defines(text: str, name: str) -> bool:
    """Whether this program binds `name` at its top level."""
    return name in _read(text).names


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """The language and the content of each fenced block, the last one perhaps unclosed; one pass over the lines."""
    language, inside = "", None
    for line in text.split("\n"):
        is_fence = line.lstrip(_BLANKS).startswith(_FENCE)
        if inside is None and is_fence:
            language, inside = _language(line), list[str]()
        elif inside is not None and is_fence:
            yield language, "".join(inside)
            inside = None
        elif inside is not None:
            inside.append(f"{line}\n")
    if inside:
        yield language, "".join(inside)[:-1]


def _language(line: str) -> str:
    """What stands behind the backticks: `python` of "```python3.12"."""
    named = line.lstrip(_BLANKS)[len(_FENCE) :].lstrip(_BLANKS)[:_MOST_LANGUAGE]
    return "".join(takewhile(lambda sign: sign.isalnum() or sign == "_", named)).lower()


@dataclass(frozen=True, slots=True)
class _Reading:
    """What is asked of a text that may be a program: what its top level binds, and whether it does anything."""

    names: frozenset[str]
    does_something: bool


@lru_cache(maxsize=_MOST_READ)
def _read(text: str) -> _Reading:
    if len(text) > MOST_PARSED or (not text.isascii() and _is_slow(text)):
        return _skimmed(text)
    body = _body(text)
    return _Reading(frozenset().union(*map(_names, body)), not all(map(_is_lone, body)))


def _skimmed(text: str) -> _Reading:
    """What the lines of a text that takes too long to parse say."""
    found = _STATEMENT.findall(text.encode(errors="replace").decode())
    return _Reading(frozenset(name for names in found for name in names if name), bool(found))


def _is_lone(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.Name)


def _body(text: str) -> list[ast.stmt]:
    """The statements of a program; none where it is no Python."""
    try:
        return parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _is_slow(text: str) -> bool:
    runs = _ACCENTS.findall(text.encode(errors="replace").decode())
    return any(len(run) >= _MOST_ACCENTS for run in runs)


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
