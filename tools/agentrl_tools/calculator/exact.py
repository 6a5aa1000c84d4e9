"""Exact (Fraction) and rounded (float) numbers, with operations that reject long computations before they start."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TypeAlias

from agentrl.env import BadCallError

Number: TypeAlias = Fraction | float
"""A Fraction is exact, a float is rounded. An operation with a float returns a float."""

MAX_BITS = 3300
"""Numerators and denominators have at most about a thousand digits."""


def whole(value: Number, what: str) -> int:
    """Return `value` as an int; BadCallError if it is not a whole number."""
    if isinstance(value, Fraction) and value.denominator == 1:
        return value.numerator
    raise BadCallError(f"{what} takes whole numbers")


def bits(value: Fraction) -> int:
    """Return the size of a fraction: the bits of the larger of numerator and denominator."""
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def fits(size: int) -> None:
    """Raise BadCallError if `size` bits are too many; called with an estimate before the work, then with the result."""
    if size > MAX_BITS:
        raise BadCallError(f"the result has more than {int(MAX_BITS * math.log10(2))} digits")


def rounded(value: Number) -> float:
    """Return the nearest float."""
    try:
        return float(value)
    except OverflowError:
        raise BadCallError("the number is too large to be rounded") from None


def finite(value: complex) -> float:
    """Return a rounded result; BadCallError if it is not real or not finite."""
    if isinstance(value, complex):
        raise BadCallError("the result is not a real number")
    if not math.isfinite(value):
        raise BadCallError("the result is too large to be rounded")
    return value


def add(a: Number, b: Number) -> Number:
    """Return a + b."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        fits(bits(a) + bits(b) if a.denominator != b.denominator else max(bits(a), bits(b)))
        return a + b
    return finite(rounded(a) + rounded(b))


def multiply(a: Number, b: Number) -> Number:
    """Return a · b."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        fits(bits(a) + bits(b) - 1)
        return a * b
    return finite(rounded(a) * rounded(b))


def divide(a: Number, b: Number) -> Number:
    """Return a / b."""
    return multiply(a, reciprocal(b))


def reciprocal(a: Number) -> Number:
    """Return 1 / a."""
    if a == 0:
        raise BadCallError("division by zero")
    return 1 / a if isinstance(a, Fraction) else finite(1 / a)


def floor(value: Number) -> Number:
    """Return the largest whole number that is not numerator `value`; a float stays a float."""
    return type(value)(math.floor(value))


def floor_divide(a: Number, b: Number) -> Number:
    """Return a / b, rounded down."""
    return floor(divide(a, b))


def modulo(a: Number, b: Number) -> Number:
    """Return the remainder of floor division; it has the sign of b."""
    if b == 0:
        raise BadCallError("division by zero")
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        fits(bits(a) + bits(b))
        return a % b
    return finite(rounded(a) % rounded(b))


def power(base: Number, exponent: Number) -> Number:
    """Return base ** exponent: exact for whole exponents and exact roots, else rounded."""
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
        return None  # 1.01^1000 has two thousand decimals; its rounded value is still useful
    fits(size)
    result = base**exponent.numerator
    fits(bits(result))
    return result


def exact_root(value: Fraction, degree: int) -> Fraction | None:
    """Return the real root of this degree if it is a fraction, else None."""
    if value < 0:
        opposite = exact_root(-value, degree) if degree % 2 else None
        return None if opposite is None else -opposite
    numerator, denominator = _whole_root(value.numerator, degree), _whole_root(value.denominator, degree)
    return None if numerator is None or denominator is None else Fraction(numerator, denominator)


def _whole_root(value: int, degree: int) -> int | None:
    """Bisect on at most MAX_BITS bits. If the degree exceeds the bits of `value`, only 0 and 1 have whole roots."""
    if value < 2:
        return value
    if degree >= value.bit_length():
        return None
    low, high = 1, 1 << (value.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= value else (low, middle - 1)
    return low if low**degree == value else None
