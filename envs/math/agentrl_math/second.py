"""The second parser, for formulas outside our grammar: math-verify, whose results are proved again."""

import contextlib
import itertools
import logging
import re
from fractions import Fraction
from typing import Any

import sympy
import sympy.physics.units  # sympy imports it lazily, and it compiles text
from latex2sympy2_extended import latex2sympy2  # type: ignore[import-untyped]
from math_verify import LatexExtractionConfig, parse
from sympy.polys.monomials import MonomialOps

from agentrl_math.judge import UndecidedError

_CONFIG = (LatexExtractionConfig(boxed_match_priority=-1),)
_DIGITS = 60
_TOKEN = r"\s*(\\(?!frac|sqrt|binom|left|sum|int|prod|lim)[A-Za-z]+|[A-Za-z\d])"
_SQRT, _FRAC = re.compile(rf"\\sqrt(?![A-Za-z]){_TOKEN}"), re.compile(rf"\\frac(?![A-Za-z]){_TOKEN}{_TOKEN}")
"""Arguments of one token without braces, which math-verify does not parse."""
_UNDONE = (sympy.Sum, sympy.Product, sympy.Integral, sympy.Limit, sympy.Derivative)
_LATE = (
    r"\int_0^1 x^2 e^x dx", r"\lim_{x\to 0} \frac{\sin x}{x}", r"\sum_{k=1}^{\infty} \frac{1}{k^2}",
    r"\sum_{k=1}^{\infty} \frac{1}{2^k}", r"\sum_{k=0}^{n} \binom{n}{k}", r"\prod_{k=1}^{n} k",
    r"\int_{-\infty}^{\infty} \frac{1}{1+x^2} dx", r"\int_0^{\infty} e^{-x^2} dx",
    r"\int_0^{\infty} \frac{\sin x}{x} dx",
)  # fmt: skip


def _numeral(text: str) -> sympy.Rational:
    """Return digits as an exact rational; sympy.Number would pass the text to eval and round decimals."""
    if not re.fullmatch(r"\d*\.?\d*", text) or not text.strip("."):
        raise ValueError(f"{text[:40]!r} is not a numeral")
    value = Fraction(text if text[-1] != "." else text[:-1])
    return sympy.Rational(value.numerator, value.denominator)


latex2sympy2._Latex2Sympy.parse_number = lambda _, text: _numeral(text.replace(",", ""))
latex2sympy2.convert_number = lambda text: _numeral(re.sub(r"[, ]", "", text))


def _monomials(_: Any, code: str, name: str) -> Any:
    """Compile code that sympy generates from the number of variables, under a file name that the worker allows."""
    scope: dict[str, Any] = {}
    exec(compile(code, "sympy.polys.monomials", "exec"), scope)  # noqa: S102
    return scope[name]


MonomialOps._build = _monomials


def equal(gold: str, given: str) -> bool:
    """Return whether math-verify parses both formulas and our own proof shows that they are equal."""
    left, right = _read(gold), _read(given)
    return left is not None and right is not None and not _refuted(left, right) and _proved(left, right)


def settles(text: str) -> bool:
    """Return whether a formula has a finite value at small integer values of its symbols."""
    value = _read(text)
    if not isinstance(value, sympy.Expr):
        return True
    return bool(_number(value.subs(_small(value.free_symbols))).is_finite)


def _read(text: str) -> Any:
    text = _FRAC.sub(r"\\frac{\1}{\2}", _SQRT.sub(r"\\sqrt{\1}", text))
    found = parse(f"${text}$", _CONFIG, fallback_mode="no_fallback", parsing_timeout=None)
    return found[0] if found and isinstance(found[0], sympy.Basic) else None


def _refuted(left: Any, right: Any) -> bool:
    """Return whether two formulas differ at small integer values of their symbols, cheaper than simplification."""
    if not isinstance(left, sympy.Expr) or not isinstance(right, sympy.Expr):
        return False
    value = _number((left - right).subs(_small(left.free_symbols | right.free_symbols)))
    return bool(value.is_number and value.is_finite and abs(value) > sympy.Float(10, _DIGITS) ** -20)


def _small(names: Any) -> dict[Any, int]:
    return dict(zip(sorted(names, key=str), itertools.count(3), strict=False))


def _number(value: Any) -> Any:
    return sympy.N(_done(value), _DIGITS)


def _done(value: Any) -> Any:
    """Evaluate sums, products, integrals and limits in closed form; sympy would compile text to compute digits."""
    value = value.doit()
    if value.has(*_UNDONE):
        raise UndecidedError("no closed form found")
    return value


def _proved(left: Any, right: Any) -> bool:
    if left == right or left.as_dummy() == right.as_dummy():
        return left is not sympy.nan
    if isinstance(left, sympy.Set) and isinstance(right, sympy.Set):
        return bool(left.symmetric_difference(right) == sympy.S.EmptySet)
    if not isinstance(left, sympy.Expr) or not isinstance(right, sympy.Expr):
        return False
    if (left - right).free_symbols:
        return bool(sympy.simplify((left - right).doit()) == 0)
    one, other = _done(left), _done(right)
    if not (one.is_finite and other.is_finite):  # an infinite difference or size proves nothing
        return bool(one.is_infinite and one == other)
    return _is_zero(_done(left - right), one)


def _is_zero(difference: Any, size: Any) -> bool:
    """Return whether a difference is zero: exactly for rationals, else to many digits relative to `size`."""
    if difference.is_Rational:
        return bool(difference == 0)
    value, scale = sympy.N(difference, _DIGITS, chop=False), sympy.N(size, _DIGITS)
    if not (value.is_finite and scale.is_finite):
        return False
    return bool(abs(value) <= sympy.Float(10, _DIGITS) ** (10 - _DIGITS) * abs(scale))


def _warm() -> None:
    """Make sympy perform its lazy imports before the worker forbids exec, which imports use."""
    for formula in _LATE:
        with contextlib.suppress(UndecidedError):
            equal(formula, r"\frac{1}{7}")
            equal(formula, formula + "+1-1")


logging.getLogger("math_verify").setLevel(logging.ERROR)
_warm()
