"""Formulas as trees; nothing is computed here."""

from dataclasses import dataclass
from fractions import Fraction


class ParseError(ValueError):
    """The text is not an expression of this grammar."""


@dataclass(frozen=True)
class Node:
    """`op` applied to `args`; leaves are num (a Fraction), sym (a name), const (pi, e, i) and inf."""

    op: str
    args: tuple["Node", ...] = ()
    value: Fraction | str = ""


ZERO, ONE, TEN = (Node("num", value=Fraction(n)) for n in (0, 1, 10))
TRIG = {"sin", "cos", "tan", "cot", "sec", "csc"}
FUNCTIONS = TRIG | {f"arc{name}" for name in TRIG} | {"sinh", "cosh", "tanh", "ln", "log", "exp"}


def symbols(node: Node) -> frozenset[str]:
    """Return the names of the free symbols."""
    if node.op == "sym":
        return frozenset([str(node.value)])
    return frozenset[str]().union(*(symbols(arg) for arg in node.args))
