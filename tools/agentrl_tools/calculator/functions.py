"""Functions that an expression may call: exact where the result is exact, else rounded."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

from agentrl.env import BadCallError
from agentrl_tools.calculator.exact import (
    Number,
    exact_root,
    finite,
    fits,
    floor,
    modulo,
    power,
    rounded,
    whole,
)

CONSTANTS: dict[str, Number] = {"pi": math.pi, "π": math.pi, "e": math.e, "tau": math.tau}


def root(value: Number, degree: Number = Fraction(2)) -> Number:
    """Return the real root of `value`; `degree` is a whole number."""
    n = whole(degree, "a root")
    if n < 1:
        raise BadCallError("the degree of a root must be at least 1")
    if isinstance(value, Fraction) and (exact := exact_root(value, n)) is not None:
        return exact
    if value < 0 and n % 2 == 0:
        raise BadCallError("the result is not a real number")
    return math.copysign(rounded(max(value, -value)) ** (1 / n), value)


def factorial(value: Number) -> Number:
    """Return n!."""
    n = whole(value, "a factorial")
    if n < 0:
        raise BadCallError("a factorial takes numbers from 0")
    return permutations(value, value)


def permutations(value: Number, chosen: Number) -> Number:
    """Return n! / (n - k)!."""
    n, k = whole(value, "perm"), whole(chosen, "perm")
    if min(n, k) < 0:
        raise BadCallError("perm takes numbers from 0")
    fits(k * (n.bit_length() - 1) // 2 if k <= n else 0)
    return fitting(math.perm(n, k))


def combinations(value: Number, chosen: Number) -> Number:
    """Return n choose k."""
    n, k = whole(value, "comb"), whole(chosen, "comb")
    if min(n, k) < 0:
        raise BadCallError("comb takes numbers from 0")
    factors = max(0, min(k, n - k))
    fits(factors * (n.bit_length() - factors.bit_length()))
    return fitting(math.comb(n, k))


def fitting(value: int) -> Fraction:
    """Return an int as a Fraction; BadCallError if it is too long."""
    fits(value.bit_length())
    return Fraction(value)


def logarithm(value: Number, base: Number = math.e) -> Number:
    """Return the logarithm, natural by default; exact if it is a whole number."""
    if value <= 0 or base <= 0 or base == 1:
        raise BadCallError("a logarithm takes numbers above 0, and a base other than 1")
    if value == 1 and isinstance(value, Fraction):
        return Fraction(0)
    nearest = _log(value) / _log(base)
    guess = Fraction(round(nearest))
    if isinstance(value, Fraction) and isinstance(base, Fraction) and abs(nearest - guess) < 1e-9:
        attempt = power(base, guess)
        if isinstance(attempt, Fraction) and attempt == value:
            return guess
    return nearest


def _log(value: Number) -> float:
    """Take the log of numerator and denominator separately: a thousand digits overflow a float, their log does not."""
    if isinstance(value, Fraction):
        return math.log(value.numerator) - math.log(value.denominator)
    return math.log(value)


def round_to(value: Number, places: Number = Fraction(0)) -> Number:
    """Round to this many decimals, halves away from 0."""
    n = whole(places, "round")
    fits(4 * abs(n))
    unit = Fraction(10) ** -n
    halves = floor(abs(Fraction(value)) / unit + Fraction(1, 2)) * unit
    signed = halves if value >= 0 else -halves
    return Fraction(signed) if isinstance(value, Fraction) else rounded(signed)


def plain(function: Callable[[float], float], value: Number) -> Number:
    """Call a function of the math module; its value at exactly 0 is exact if it is 0 or 1."""
    try:
        result = finite(function(rounded(value)))
    except (ValueError, OverflowError) as error:
        raise BadCallError(f"{function.__name__}: {error}") from None
    return Fraction(int(result)) if isinstance(value, Fraction) and value == 0 and result in (0, 1) else result


def _fold(operation: Callable[[int, int], int], *values: Number) -> Number:
    result = whole(values[0], "gcd and lcm")
    for value in values[1:]:
        result = operation(result, whole(value, "gcd and lcm"))
        fits(result.bit_length())
    return fitting(abs(result))


def _extreme(choose: Callable[..., Number], *values: Number) -> Number:
    return choose(values)


ANY = 100
FUNCTIONS: dict[str, tuple[Callable[..., Number], int, int]] = {
    "sqrt": (root, 1, 1),
    "√": (root, 1, 1),
    "cbrt": (lambda value: root(value, Fraction(3)), 1, 1),
    "root": (root, 1, 2),
    "abs": (abs, 1, 1),
    "floor": (floor, 1, 1),
    "ceil": (lambda value: -floor(-value), 1, 1),
    "round": (round_to, 1, 2),
    "min": (partial(_extreme, min), 1, ANY),
    "max": (partial(_extreme, max), 1, ANY),
    "gcd": (partial(_fold, math.gcd), 1, ANY),
    "lcm": (partial(_fold, math.lcm), 1, ANY),
    "mod": (modulo, 2, 2),
    "pow": (power, 2, 2),
    "factorial": (factorial, 1, 1),
    "comb": (combinations, 2, 2),
    "perm": (permutations, 2, 2),
    "ln": (logarithm, 1, 1),
    "log": (logarithm, 1, 2),
    "log2": (lambda value: logarithm(value, Fraction(2)), 1, 1),
    "log10": (lambda value: logarithm(value, Fraction(10)), 1, 1),
    **{name: (partial(plain, getattr(math, name)), 1, 1) for name in ("exp", "sin", "cos", "tan", "asin", "acos")},
    **{name: (partial(plain, getattr(math, name)), 1, 1) for name in ("atan", "sinh", "cosh", "tanh")},
}
"""Name -> (function, minimum and maximum number of arguments)."""
