"""Numbers that are exact (fractions) or rounded (floats), and operations that refuse before they would take long."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TypeAlias

from agentrl.env import BadCallError

Number: TypeAlias = Fraction | float
"""A Fraction is exact; a float is rounded, and makes rounded whatever it enters."""

MAX_BITS = 3300
"""Numerators and denominators of at most about a thousand digits."""


def whole(value: Number, what: str) -> int:
    """The integer that `value` is; BadCallError where it is none."""
    if isinstance(value, Fraction) and value.denominator == 1:
        return value.numerator
    raise BadCallError(f"{what} takes whole numbers")


def bits(value: Fraction) -> int:
    """The size of a fraction: the bits of its larger half."""
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def fits(size: int) -> None:
    """Refuse a result of `size` bits that is too long; asked before it is computed, and after a rough guess again."""
    if size > MAX_BITS:
        raise BadCallError(f"the result has more than {int(MAX_BITS * math.log10(2))} digits")


def rounded(value: Number) -> float:
    """The nearest float."""
    try:
        return float(value)
    except OverflowError:
        raise BadCallError("the number is too large to be rounded") from None


def finite(value: complex) -> float:
    """A rounded result that is a real number."""
    if isinstance(value, complex):
        raise BadCallError("the result is not a real number")
    if not math.isfinite(value):
        raise BadCallError("the result is too large to be rounded")
    return value


def add(a: Number, b: Number) -> Number:
    """a + b."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        fits(bits(a) + bits(b) if a.denominator != b.denominator else max(bits(a), bits(b)))
        return a + b
    return finite(rounded(a) + rounded(b))


def multiply(a: Number, b: Number) -> Number:
    """a · b."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        fits(bits(a) + bits(b) - 1)
        return a * b
    return finite(rounded(a) * rounded(b))


def divide(a: Number, b: Number) -> Number:
    """a / b."""
    return multiply(a, reciprocal(b))


def reciprocal(a: Number) -> Number:
    """1 / a."""
    if a == 0:
        raise BadCallError("division by zero")
    return 1 / a if isinstance(a, Fraction) else finite(1 / a)


def floor(value: Number) -> Number:
    """The nearest whole number below; a rounded value stays rounded."""
    return type(value)(math.floor(value))


def floor_divide(a: Number, b: Number) -> Number:
    """The whole part of a / b, rounded down."""
    return floor(divide(a, b))


def modulo(a: Number, b: Number) -> Number:
    """What floor division leaves; it has the sign of b."""
    if b == 0:
        raise BadCallError("division by zero")
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        fits(bits(a) + bits(b))
        return a % b
    return finite(rounded(a) % rounded(b))


def power(base: Number, exponent: Number) -> Number:
    """base to the exponent: exact for whole exponents and where a root comes out, else rounded."""
    if base == 0 and exponent < 0:
        raise BadCallError("division by zero")
    is_exact = isinstance(base, Fraction) and isinstance(exponent, Fraction)
    if is_exact and (exact := _exact_power(Fraction(base), Fraction(exponent))) is not None:
        return exact
    try:
        return finite(rounded(base) ** rounded(exponent))
    except OverflowError:
        raise BadCallError("the result is too large to be rounded") from None


def _exact_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1:
        root = exact_root(base, exponent.denominator)
        return None if root is None else _exact_power(root, Fraction(exponent.numerator))
    if base in (0, 1, -1):
        return Fraction(1) if exponent == 0 else base if exponent.numerator % 2 else base * base
    size = (bits(base) - 1) * abs(exponent.numerator)
    if base.denominator > 1 and size > MAX_BITS:
        return None  # 1.01^1000 has two thousand decimals, and a rounded value that is worth knowing
    fits(size)
    result = base**exponent.numerator
    fits(bits(result))
    return result


def exact_root(value: Fraction, degree: int) -> Fraction | None:
    """The real root of this degree where it is a fraction; None where it is not, or where there is none."""
    if value < 0:
        opposite = exact_root(-value, degree) if degree % 2 else None
        return None if opposite is None else -opposite
    above, below = _whole_root(value.numerator, degree), _whole_root(value.denominator, degree)
    return None if above is None or below is None else Fraction(above, below)


def _whole_root(value: int, degree: int) -> int | None:
    """By bisection on at most MAX_BITS bits; a degree above the size of `value` has the roots 0 and 1 only."""
    if value < 2:
        return value
    if degree >= value.bit_length():
        return None
    low, high = 1, 1 << (value.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= value else (low, middle - 1)
    return low if low**degree == value else None
