"""Types of answers: number, numeral, words, formula, list, set, tuple or interval, union, matrix, relation."""

from collections.abc import Callable
from dataclasses import dataclass

from agentrl_math.expr import Node


@dataclass(frozen=True)
class Scalar:
    """One expression with its unit ("" for none) and its source text."""

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
    """A formula outside the grammar, as cleaned text."""

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
    """The first set restricted by the others: `cap` is the intersection, `minus` the difference."""

    op: str
    members: tuple["Answer", ...]


@dataclass(frozen=True)
class Matrix:
    """Rows of answers."""

    rows: tuple[tuple["Answer", ...], ...]


@dataclass(frozen=True)
class Relation:
    """A chain of relations: sides[0] ops[0] sides[1] ops[1] …"""

    ops: tuple[str, ...]
    sides: tuple["Answer", ...]
    texts: tuple[str, ...]


Answer = Scalar | Based | Words | Opaque | Items | Union | Combined | Matrix | Relation
Read = Callable[[str], Answer]
"""Function with which a reader reads a part of its text."""
