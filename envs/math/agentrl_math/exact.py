"""Rational arithmetic of bounded size."""
# ruff: noqa: ARG001, ARG005  (every rule takes the same arguments)

from collections.abc import Callable
from fractions import Fraction
from math import comb, factorial

from agentrl_math.expr import Node
from agentrl_math.limits import FAST_BITS


class InexactError(ValueError):
    """The value is not rational, or not known to be."""


class TooLargeError(ValueError):
    """The value is rational but too large."""


class UndefinedError(ValueError):
    """There is no value, for example because of a division by zero."""


def exact(node: Node, bits: int) -> Fraction:
    """Return the rational value of a tree; InexactError, TooLargeError or UndefinedError if there is none."""
    if node.op == "num":
        return bounded(Fraction(node.value), bits)
    if node.op not in _RULES:
        raise InexactError(node.op)
    return bounded(_RULES[node.op](*(exact(arg, bits) for arg in node.args), bits=bits), bits)


HUGE_BITS = 5_000


def huge(node: Node) -> bool:
    """Return whether the magnitude is certainly above 2**HUGE_BITS, as for towers, without computing it."""
    if node.op == "neg":
        return huge(node.args[0])
    if node.op in ("factorial", "factorial2"):
        return _at_least(node.args[0], HUGE_BITS)
    if node.op == "mul":
        return any(map(huge, node.args)) and all(_at_least(arg, 1) for arg in node.args)
    if node.op != "pow" or not _at_least(node.args[0], 2):
        return False
    return _at_least(node.args[1], HUGE_BITS) or (huge(node.args[0]) and _at_least(node.args[1], 1))


def _at_least(node: Node, bound: int) -> bool:
    try:
        return exact(node, FAST_BITS) >= bound
    except (InexactError, TooLargeError, UndefinedError):
        return node.op != "neg" and huge(node)


def bounded(value: Fraction, bits: int) -> Fraction:
    """Return the value; TooLargeError if it has more bits."""
    if value.numerator.bit_length() > bits or value.denominator.bit_length() > bits:
        raise TooLargeError
    return value


def _multiply(*factors: Fraction, bits: int) -> Fraction:
    product = Fraction(1)
    for factor in factors:
        product = bounded(product * factor, bits)
    return product


def divide(a: Fraction, b: Fraction, bits: int = 0) -> Fraction:
    """Return a / b; UndefinedError if b is 0."""
    if b == 0:
        raise UndefinedError("division by zero")
    return a / b


def power(a: Fraction, b: Fraction, bits: int) -> Fraction:
    """Return a ** b; InexactError if it is not rational."""
    if b.denominator != 1:
        return rational_root(power(a, Fraction(b.numerator), bits), b.denominator)
    if a == 0 and b <= 0:
        raise UndefinedError("a power of zero")
    size = max(a.numerator.bit_length(), a.denominator.bit_length())
    if size > 1 and abs(b) * size > bits:
        raise TooLargeError
    return Fraction(a) ** (int(b) if a not in (1, -1) else int(b) % 2)


def rational_root(a: Fraction, n: int) -> Fraction:
    """Return the n-th root, the real one for odd n; InexactError if it is not rational."""
    if (a < 0 and n % 2 == 0) or max(a.numerator.bit_length(), a.denominator.bit_length()) > FAST_BITS:
        raise InexactError
    sign = -1 if a < 0 else 1
    return sign * Fraction(_integer_root(abs(a.numerator), n), _integer_root(a.denominator, n))


def _integer_root(a: int, n: int) -> int:
    if n > a.bit_length():
        if a > 1:
            raise InexactError
        return a
    low, high = 0, 1 << (a.bit_length() // n + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**n <= a else (low, middle - 1)
    if low**n != a:
        raise InexactError
    return low


def _root(a: Fraction, n: Fraction, bits: int) -> Fraction:
    if n.denominator != 1 or n < 1:
        raise InexactError
    return rational_root(a, int(n))


def _whole(a: Fraction, bits: int) -> int:
    """Return a as a non-negative integer whose factorial has at most `bits` bits."""
    if a.denominator != 1 or a < 0:
        raise InexactError
    if a.numerator.bit_length() * a > bits:
        raise TooLargeError
    return int(a)


def _factorial2(a: Fraction, bits: int) -> Fraction:
    product = 1
    for factor in range(_whole(a, bits), 0, -2):
        product *= factor
    return Fraction(product)


def _binomial(a: Fraction, b: Fraction, bits: int) -> Fraction:
    if b.denominator != 1 or a.denominator != 1 or a < 0:
        raise InexactError
    if b > a or b < 0:
        return Fraction(0)
    return Fraction(comb(_whole(a, bits), int(b)))


_RULES: dict[str, Callable[..., Fraction]] = {
    "add": lambda *args, bits: sum(args, Fraction(0)),
    "neg": lambda a, bits: -a,
    "mul": _multiply,
    "div": divide,
    "pow": power,
    "root": _root,
    "abs": lambda a, bits: abs(a),
    "floor": lambda a, bits: Fraction(a.numerator // a.denominator),
    "ceil": lambda a, bits: Fraction(-(-a.numerator // a.denominator)),
    "factorial": lambda a, bits: Fraction(factorial(_whole(a, bits))),
    "factorial2": _factorial2,
    "binom": _binomial,
}
