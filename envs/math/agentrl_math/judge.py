"""Judges of expressions: the protocol, and the first judge, exact arithmetic with small rationals in this process."""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from agentrl_math.exact import InexactError, TooLargeError, UndefinedError, exact, huge
from agentrl_math.expr import Node, symbols
from agentrl_math.limits import FAST_BITS

_BEYOND = re.compile(
    r"\\(?:sum|i*int|oint|prod|lim|gcd|lcm|max|min|operatorname|bmod|mod|pmod|det|cap|partial)(?![a-z])"
)


def is_beyond(text: str) -> bool:
    """Return whether a formula contains what only math-verify parses; other unparsable text is not a formula."""
    return bool(_BEYOND.search(text))


class UndecidedError(Exception):
    """This judge cannot decide; a slower one may."""


class GoldUndefinedError(Exception):
    """The gold has no value."""


class Judge(Protocol):
    """Judge of expressions. Every method may raise UndecidedError, GoldUndefinedError or UndefinedError."""

    def equal(self, gold: Node, given: Node, rounding: float | int | str) -> bool:
        """Return whether two expressions have the same value under the rounding policy."""

    def proportional(self, gold: Node, given: Node, positive: bool) -> bool:
        """Return whether one expression is a constant times the other; the constant may have to be positive."""

    def order(self, a: Node, b: Node) -> int | None:
        """Return -1, 0 or 1 if a < b, a = b or a > b for real numbers; None if that cannot be shown."""

    def opaque(self, gold: str, given: str) -> bool:
        """Return whether two formulas outside the grammar are equal."""

    def settles(self, node: Node) -> bool:
        """Return whether an expression has a value that can be computed."""

    def settles_opaque(self, text: str) -> bool:
        """Return whether a formula outside the grammar has a value that can be computed."""


@dataclass(frozen=True)
class Quick:
    """Judge that decides in this process what small rationals can decide."""

    def equal(self, gold: Node, given: Node, rounding: float | int | str) -> bool:
        """Compare by exact arithmetic."""
        a, b = infinity(gold), infinity(given)
        if a or b:
            return a == b
        left, right = small(gold), small(given)
        if isinstance(left, UndefinedError):
            raise GoldUndefinedError
        if left is None or right is None:
            return _quick_towers(gold, given, left, right)
        return not isinstance(right, UndefinedError) and close(left, right, rounding)

    def proportional(self, gold: Node, given: Node, positive: bool) -> bool:  # noqa: ARG002
        """Return True for identical expressions, else raise UndecidedError."""
        if gold == given:
            return True
        raise UndecidedError

    def order(self, a: Node, b: Node) -> int | None:
        """Compare by exact arithmetic; infinities are beyond all numbers."""
        ends = infinity(a), infinity(b)
        if any(ends):
            return (ends[0] > ends[1]) - (ends[0] < ends[1])
        if symbols(a) or symbols(b):
            return None
        left, right = small(a), small(b)
        if isinstance(left, UndefinedError) or isinstance(right, UndefinedError):
            return None
        if left is None or right is None:
            raise UndecidedError
        return (left > right) - (left < right)

    def opaque(self, gold: str, given: str) -> bool:  # noqa: ARG002
        """Raise UndecidedError: only a worker decides this."""
        raise UndecidedError

    def settles(self, node: Node) -> bool:  # noqa: ARG002
        """Raise UndecidedError: only a worker decides this."""
        raise UndecidedError

    def settles_opaque(self, text: str) -> bool:  # noqa: ARG002
        """Raise UndecidedError: only a worker decides this."""
        raise UndecidedError


def close(gold: Fraction, given: Fraction, rounding: float | int | str) -> bool:
    """Compare rationals under the rounding policy."""
    if rounding == "exact" or isinstance(rounding, str):
        return gold == given
    if isinstance(rounding, int):
        return _rounded(gold, rounding) == _rounded(given, rounding)
    return abs(gold - given) <= Fraction(rounding) * abs(gold)


def _rounded(value: Fraction, decimals: int) -> int:
    """Round half away from zero; return the result times 10**decimals."""
    scaled = abs(value) * 10**decimals + Fraction(1, 2)
    whole = int(scaled.numerator // scaled.denominator)
    return -whole if value < 0 else whole


def infinity(node: Node) -> int:
    """Return 1 or -1 for an infinity, else 0."""
    if node.op == "neg":
        return -infinity(node.args[0])
    return 1 if node.op == "inf" else 0


def small(node: Node) -> Fraction | UndefinedError | None:
    """Return a small rational value; an UndefinedError if there is certainly none; None if that is unknown here."""
    try:
        return exact(node, FAST_BITS)
    except UndefinedError as undefined:
        return undefined
    except (InexactError, TooLargeError):
        return None


def _quick_towers(gold: Node, given: Node, left: Fraction | None, right: Fraction | UndefinedError | None) -> bool:
    """Return False for a small rational and a tower; raise UndecidedError for anything else."""
    if (left is not None and huge(given)) or (isinstance(right, Fraction) and huge(gold)):
        return False
    raise UndecidedError
