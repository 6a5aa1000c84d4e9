"""Notation of numbers: grouped digits, and decimals that round a fraction."""

import re
from fractions import Fraction
from functools import lru_cache

MIN_DIGITS = 10
"""A decimal with this many significant digits represents the fraction that it rounds."""
MAX_DIGITS = 400
_FLOAT_DIGITS = 16
_MARKED = re.compile(r"(?<![\w.'])([1-9]\d{0,2})((?:'\d{3})+|(?:\\?_\d{3})+)(?![\d'_])")
"""Matches 1'000'000 and 1_000_000; a base has only one or two digits."""
_DOTTED = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:\.\d{3}){2,}(?:,\d{1,400})?(?![\d.,])")
_SPACED = re.compile(r"^(-?(?:\\\$ ?)?[1-9]\d{0,2})((?: \d{3})+)(?=(?:\.\d+)?(?:$| ?[^\d\s.,;]))")
_COMMAS = re.compile(r"(?<![\d,.])(?:[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d?(?:,\d\d)+,\d{3})(?![\d,])")
_BRACKETED = re.compile(r"\(\s*-?\d{1,3},|\[\s*-?\d{1,3},|\\\{\s*-?\d{1,3},|,\d{3}\s*[)\]]|,\d{3}\s*\\\}")
_DECIMAL = re.compile(r"\s*-?\s*(\d*)\.(\d+)\s*(?:(?:\*\s*10\s*\^\s*\{?|[eE])\s*([-+]?\d{1,3})\s*\}?)?\s*")


def ungrouped(text: str) -> str:
    """Remove the separators from 1'000'000, 1_000_000, 1 000 000 and 1.000.000."""
    if "'" in text or "_" in text:
        text = _MARKED.sub(lambda m: m.group(1) + re.sub(r"\D", "", m.group(2)), text)
    if text.count(".") > 1:
        text = _DOTTED.sub(lambda m: m.group().replace(".", "").replace(",", "."), text)
    return _SPACED.sub(lambda m: m.group(1) + m.group(2).replace(" ", ""), text) if " " in text else text


def without_commas(text: str) -> str:
    """Remove the commas from 1,234,567 and 12,34,567, except in brackets, where commas separate members."""
    if "," not in text or _BRACKETED.search(text):
        return text
    return _COMMAS.sub(lambda m: m.group().replace(",", ""), text)


@lru_cache(maxsize=1024)
def _decimal(text: str) -> tuple[int, int, int] | None:
    """Return (digits as an integer, decimals, significant digits) of a decimal; None if it has too few digits."""
    found = _DECIMAL.fullmatch(text) if MIN_DIGITS < len(text) < MAX_DIGITS else None
    if not found:
        return None
    digits = found.group(1) + found.group(2)
    significant = len(digits.lstrip("0"))
    if significant < MIN_DIGITS:
        return None
    sign = -1 if text.lstrip().startswith("-") else 1
    return sign * int(digits), len(found.group(2)) - int(found.group(3) or 0), significant


def rounds(text: str, value: Fraction) -> bool:
    """Return whether a decimal of ten digits or more is `value`, a non-terminating fraction, rounded to its last digit.

    A decimal of 16 digits may also be the nearest binary float, as Python prints it: 0.6666666666666666 for 2/3.
    """
    found = _decimal(text)
    if found is None or _terminates(value):
        return False
    digits, decimals, significant = found
    scaled = abs(value) * Fraction(10) ** decimals + Fraction(1, 2)
    if abs(digits) == scaled.numerator // scaled.denominator:
        return (digits < 0) == (value < 0)
    return significant >= _FLOAT_DIGITS and _is_float(Fraction(digits) / Fraction(10) ** decimals, value)


def _is_float(one: Fraction, other: Fraction) -> bool:
    try:
        return float(one) == float(other) != 0
    except OverflowError:
        return False


def _terminates(value: Fraction) -> bool:
    rest = value.denominator
    rest >>= (rest & -rest).bit_length() - 1
    return pow(5, rest.bit_length(), rest) == 0
