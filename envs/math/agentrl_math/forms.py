"""What an answer can be: number, numeral, words, formula, list, set, tuple or interval, union, matrix, relation."""

from collections.abc import Callable
from dataclasses import dataclass

from agentrl_math.expr import Node


@dataclass(frozen=True)
class Scalar:
    """One expression, its unit ("" for none) and the text it came from."""

    node: Node
    unit: str = ""
    text: str = ""


@dataclass(frozen=True)
class Based:
    """A numeral with its base: digits are compared, not values."""

    digits: str
    base: str


@dataclass(frozen=True)
class Words:
    """An answer in words, as written."""

    text: str


@dataclass(frozen=True)
class Opaque:
    """A formula outside the grammar, by its cleaned text."""

    text: str


@dataclass(frozen=True)
class Items:
    """Several answers; `kind` is list, set, and, a pair of brackets such as "(]", or ":" for a ratio or time."""

    kind: str
    members: tuple["Answer", ...]


@dataclass(frozen=True)
class Union:
    """Sets joined by \\cup or "or"."""

    members: tuple["Answer", ...]


@dataclass(frozen=True)
class Combined:
    """The first set cut down by the others: `cap` keeps what is in all of them, `minus` what is in none."""

    op: str
    members: tuple["Answer", ...]


@dataclass(frozen=True)
class Matrix:
    """Rows of answers."""

    rows: tuple[tuple["Answer", ...], ...]


@dataclass(frozen=True)
class Relation:
    """sides[0] ops[0] sides[1] ops[1] …"""

    ops: tuple[str, ...]
    sides: tuple["Answer", ...]
    texts: tuple[str, ...]


Answer = Scalar | Based | Words | Opaque | Items | Union | Combined | Matrix | Relation
Read = Callable[[str], Answer]
"""Reads a part of the text that a reader is given."""
