"""Plain numbers, read without a parser: the path that RL on arithmetic takes millions of times."""
# ruff: noqa: RUF001  (models write these signs)

import re
from fractions import Fraction
from functools import lru_cache

from agentrl_math.expr import Node

_NUMBER = re.compile(r"\s*([-+−]?)\s*(\d{1,400}(?:,\d{3})*(?:\.\d{0,400})?|\.\d{1,400})\s*\.?\s*")
_FRACTION = re.compile(
    r"\s*([-+−]?)\s*(?:\\[dt]?frac\{\s*(-?\d{1,400})\s*\}\{\s*(\d{1,400})\s*\}|(\d{1,400})\s*/\s*(\d{1,400}))\s*"
)
_GROUPED = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?")


@lru_cache(maxsize=4096)
def literal(text: str) -> Fraction | None:
    r"""The value of an integer, decimal, a/b or \frac{a}{b}, with or without $; None for anything else."""
    if len(text) > 900:
        return None
    text = text.replace("{,}", ",").strip().strip("$").removeprefix("\\(").removesuffix("\\)")
    if found := _NUMBER.fullmatch(text):
        digits = found.group(2)
        if "," in digits and not _GROUPED.fullmatch(digits):
            return None
        return _signed(found.group(1), Fraction(digits.replace(",", "").rstrip(".")))
    if found := _FRACTION.fullmatch(text):
        above, below = found.group(2) or found.group(4), found.group(3) or found.group(5)
        return _signed(found.group(1), Fraction(int(above), int(below))) if int(below) else None
    return None


def _signed(sign: str, value: Fraction) -> Fraction:
    return -value if sign in ("-", "−") and sign else value


def is_value(node: Node) -> bool:
    """Whether a tree is a number written down rather than something to work out."""
    if node.op == "neg":
        return is_value(node.args[0])
    if node.op == "div":
        return all(is_value(arg) for arg in node.args)
    if node.op == "add":
        return len(node.args) == 2 and node.args[0].op == node.args[1].op == "num" and _is_part(node.args[1])
    if node.op == "mul":
        scale = node.args[-1]
        return len(node.args) == 2 and is_value(node.args[0]) and scale.op == "pow" and scale.args[0].value == 10
    return node.op == "num"


def _is_part(node: Node) -> bool:
    return isinstance(node.value, Fraction) and node.value.denominator > 1
