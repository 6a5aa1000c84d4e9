"""Comparison of results with expectations: values with their exact types, and printed text."""

import math
from collections.abc import KeysView
from typing import Any

import re2

from agentrl_code.replies import Foreign, ForeignError

_ORDERED = ("list", "tuple", "deque")
_KEYED = ("dict", "Counter", "defaultdict")
_NUMBER: Any = re2.compile(r"(?i)[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf(?:inity)?)")
MOST_DIGITS = 1000
"""Maximum length of a word that is parsed as a number."""
_MARKS = frozenset(".eEnN")
"""Characters of which a float in text has at least one: point, exponent, NaN or infinity."""


def same(wanted: Any, got: Any, tolerance: float = 0.0) -> bool:
    """Compare plain data with exact types, floats by `close`, sets and keys exactly; ForeignError for objects."""
    if isinstance(got, Foreign):
        raise ForeignError(f"{got!r}, which is not compared")
    if type(wanted) is not type(got):
        return False
    if isinstance(wanted, float):
        return close(wanted, got, tolerance)
    if isinstance(wanted, complex):
        return close(wanted.real, got.real, tolerance) and close(wanted.imag, got.imag, tolerance)
    name = type(wanted).__name__
    if name in _ORDERED:
        return len(wanted) == len(got) and all(same(w, g, tolerance) for w, g in zip(wanted, got, strict=True))
    if name == "OrderedDict":
        return same(list(wanted.items()), list(got.items()), tolerance)
    if name in _KEYED:
        if len(wanted) != len(got):
            return False
        theirs = {_exact(key): value for key, value in got.items()}
        ours = {_exact(key): value for key, value in wanted.items()}
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key], tolerance) for key in ours)
    if isinstance(wanted, set | frozenset | KeysView):
        is_as_large = len(wanted) == len(got)
        return is_as_large and {_exact(item) for item in wanted} == {_exact(item) for item in got}
    if name == "Decimal" and (wanted.is_nan() or got.is_nan()):
        return bool(wanted.is_qnan() and got.is_qnan())
    try:
        return bool(wanted == got)
    except ArithmeticError:  # a Decimal that signals
        return False


def close(wanted: float, got: float, tolerance: float) -> bool:
    """Return whether two floats are equal, both NaN, or within `tolerance`, relative or absolute."""
    if math.isnan(wanted) or math.isnan(got):
        return math.isnan(wanted) and math.isnan(got)
    return wanted == got or (tolerance > 0 and math.isclose(wanted, got, rel_tol=tolerance, abs_tol=tolerance))


def same_text(wanted: str, got: str, tolerance: float = 0.0) -> bool:
    """Compare text except for white space at line ends and at the end; with a tolerance, word by word.

    With a tolerance, an expected float matches any number that is `close`; other words match only themselves.
    """
    left, right = _lines(wanted), _lines(got)
    if tolerance <= 0:
        return left == right
    return len(left) == len(right) and all(_same_line(w, g, tolerance) for w, g in zip(left, right, strict=True))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _same_line(wanted: str, got: str, tolerance: float) -> bool:
    left, right = wanted.split(), got.split()
    return len(left) == len(right) and all(_same_word(w, g, tolerance) for w, g in zip(left, right, strict=True))


def _same_word(wanted: str, got: str, tolerance: float) -> bool:
    if wanted == got:
        return True
    is_float = bool(_MARKS.intersection(wanted)) and _is_number(wanted) and _is_number(got)
    return is_float and close(float(wanted), float(got), tolerance)


def _is_number(word: str) -> bool:
    return len(word) <= MOST_DIGITS and word.isascii() and _NUMBER.fullmatch(word) is not None


def _exact(key: Any) -> Any:
    """Return a key that distinguishes 1, 1.0 and True at any depth and identifies NaN with itself."""
    if isinstance(key, Foreign):
        raise ForeignError(f"{key!r}, which is not compared")
    if isinstance(key, tuple | frozenset):
        parts = map(_exact, key)
        return type(key).__name__, tuple(parts) if isinstance(key, tuple) else frozenset(parts)
    return type(key).__name__, "nan" if key != key else key
