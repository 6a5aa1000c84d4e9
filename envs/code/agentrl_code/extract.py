"""The program in a turn: its last Python block, else the whole text if it is a program."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any

import re2

from agentrl_code.scripts import parse

_OPENED, _CLOSED = "<think>", "</think>"
_FENCES, _BLANKS = ("```", "~~~"), " \t"
_PYTHON = ("python", "py", "python3")
_MOST_LANGUAGE = 20
MOST_PARSED = 1 << 14
"""Maximum characters of a text to parse here, since a character may take 17 microseconds: `f"{a}{a}…"`.

A longer text is only searched for lines that begin a statement; the sandbox finds out whether it is a program.
"""
_MOST_READ = 64
"""Size of the cache of parsed texts: several functions look at the answers and programs of an episode."""
_ACCENTS: Any = re2.compile(r"[\pM\x{FF9E}\x{FF9F}]+")
_NAME = r"[\pL_][\pL\pN_]*"
_STATEMENT: Any = re2.compile(
    rf"(?m)^(?:(?:async +)?(?:def|class) +({_NAME})[(:]|({_NAME}) *(?::[^=\n]*)?=(?:[^=]|$)|(?:import|from) +{_NAME}"
    rf"|(?:for|while|if|with|try)\b.*:|@{_NAME}|{_NAME}(?:\.{_NAME})*\()"
)
"""Unindented line that begins a statement; the groups are the names that it binds."""
_MOST_ACCENTS = 100
"""Maximum consecutive accents: Python normalises names in time quadratic in their number."""


def extract(text: str) -> str | None:
    """Return the program, or None; the content of a think block, closed or not, does not count.

    An unclosed block extends to the end. Blocks marked as Python take precedence over unmarked blocks.
    """
    answer = text.rpartition(_CLOSED)[2]
    if answer.lstrip().startswith(_OPENED):
        return None
    blocks = list(_blocks(answer))
    if len(blocks) > (thoughts := blocks.count((_OPENED, ""))) > 0:
        return None
    for names in (_PYTHON, ("",)):
        if found := [code for name, code in blocks if name in names and code.strip()]:
            return found[-1]
    return answer if len(blocks) == thoughts and is_program(answer) else None


def is_program(text: str) -> bool:
    """Return whether this is Python that does something; a single word is Python but does nothing."""
    return _read(text).does_something


def defines(text: str, name: str) -> bool:
    """Return whether this program binds `name` at its top level."""
    return name in _read(text).names


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield language and content of every fenced block, in one pass over the lines; the last one may be unclosed.

    A line outside of blocks that opens a think block is yielded as an empty block of that name.
    """
    opening, inside = "", None
    for line in text.split("\n"):
        fence = line.lstrip(_BLANKS)[:3]
        if inside is None and fence in _FENCES:
            opening, inside = line, list[str]()
        elif inside is not None and fence in _FENCES and fence == opening.lstrip(_BLANKS)[:3]:
            yield _language(opening), "".join(_outdented(inside, opening))
            inside = None
        elif inside is not None:
            inside.append(f"{line}\n")
        elif _OPENED in line:
            yield _OPENED, ""
    if inside:
        yield _language(opening), "".join(_outdented(_closed(inside, opening), opening))


def _outdented(lines: list[str], opening: str) -> list[str]:
    """Remove the indentation of the fence, as in a list item, if all lines have it."""
    indent = opening[: len(opening) - len(opening.lstrip(_BLANKS))]
    if not all(line.startswith(indent) or not line.strip() for line in lines):
        return lines
    return [line[len(indent) :] if line.startswith(indent) else line.lstrip(_BLANKS) for line in lines]


def _closed(lines: list[str], opening: str) -> list[str]:
    """Return the lines of a block without a closing line: up to a line that ends with a fence, else to the end."""
    fence = opening.lstrip(_BLANKS)[:3]
    for number, line in enumerate(lines):
        if line.rstrip().endswith(fence):
            return [*lines[:number], f"{line.rstrip().removesuffix(fence)}\n"]
    return [*lines[:-1], lines[-1][:-1]]


def _language(line: str) -> str:
    """Return the language after a fence, for example `python3` of "```python3.12"."""
    named = line.lstrip(_BLANKS + "`~")[:_MOST_LANGUAGE]
    return "".join(takewhile(lambda sign: sign.isalnum() or sign == "_", named)).lower()


@dataclass(frozen=True, slots=True)
class _Reading:
    """Facts about a text that may be a program: the names that its top level binds, and whether it does anything."""

    names: frozenset[str]
    does_something: bool


@lru_cache(maxsize=_MOST_READ)
def _read(text: str) -> _Reading:
    if len(text) > MOST_PARSED or (not text.isascii() and _is_slow(text)):
        return _skimmed(text)
    body = _body(text)
    return _Reading(frozenset().union(*map(_names, body)), not all(map(_is_lone, body)))


def _skimmed(text: str) -> _Reading:
    """Read a text by its lines, if parsing would take too long."""
    found = _STATEMENT.findall(text.encode(errors="replace").decode())
    return _Reading(frozenset(name for names in found for name in names if name), bool(found))


def _is_lone(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.Name)


def _body(text: str) -> list[ast.stmt]:
    """Return the statements of a program; [] if it is not Python."""
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
