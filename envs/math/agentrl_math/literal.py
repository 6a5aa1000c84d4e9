"""Plain numbers, read without a parser: the fast path, which RL on arithmetic takes millions of times."""
# ruff: noqa: RUF001  (models write these signs)

import re
from fractions import Fraction
from functools import lru_cache

from agentrl_math.expr import Node
from agentrl_math.numerals import MIN_DIGITS

_NUMBER = re.compile(r"\s*([-+−]?)\s*(\d{1,400}(?:,\d{3})*(?:\.\d{0,400})?|\.\d{1,400})\s*(?:\.\s*)?")
_FRACTION = re.compile(
    r"\s*([-+−]?)\s*(?:\\[dt]?frac\{\s*(-?\d{1,400})\s*\}\{\s*(\d{1,400})\s*\}|(\d{1,400})\s*/\s*(\d{1,400}))\s*"
)
_GROUPED = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?")


@lru_cache(maxsize=4096)
def literal(text: str) -> Fraction | None:
    r"""Return the value of an integer, decimal, a/b or \frac{a}{b}, with or without $; None for anything else.

    A decimal of ten digits or more is left to `numerals.rounds`.
    """
    if len(text) > 900:
        return None
    text = text.replace("{,}", ",").strip().strip("$").removeprefix("\\(").removesuffix("\\)")
    if found := _NUMBER.fullmatch(text):
        digits = found.group(2)
        if "," in digits and not _GROUPED.fullmatch(digits):
            return None
        if len(digits) > MIN_DIGITS and "." in digits:
            return None  # it may represent the fraction that it rounds
        return _signed(found.group(1), Fraction(digits.replace(",", "").rstrip(".")))
    if found := _FRACTION.fullmatch(text):
        numerator, denominator = found.group(2) or found.group(4), found.group(3) or found.group(5)
        if int(denominator):
            return _signed(found.group(1), Fraction(int(numerator), int(denominator)))
    return None


def _signed(sign: str, value: Fraction) -> Fraction:
    return -value if sign in ("-", "−") and sign else value


def is_value(node: Node) -> bool:
    """Return whether a tree is a plain number: integer, decimal, fraction, mixed number, or one of these times 10^k."""
    node = _unsigned(node)
    if node.op == "mul":
        scale = node.args[-1]
        return len(node.args) == 2 and is_value(node.args[0]) and scale.op == "pow" and _is_power_of_ten(scale)
    return node.op == "num" or (node.op == "div" and all(_unsigned(arg).op == "num" for arg in node.args))


def _is_power_of_ten(node: Node) -> bool:
    base, exponent = node.args[0], _unsigned(node.args[1])
    return base.value == 10 and isinstance(exponent.value, Fraction) and exponent.value.denominator == 1


def _unsigned(node: Node) -> Node:
    return node.args[0] if node.op == "neg" else node
