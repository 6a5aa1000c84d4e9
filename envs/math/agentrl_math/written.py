"""Numbers in a formula: repeating and unfinished decimals, powers of ten, mixed numbers."""

import re
from fractions import Fraction

from agentrl_math.expr import TEN, Node, ParseError

_NUMBER = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)")
_EXPONENT = re.compile(r"[eE]([+-]?\d{1,6})(?![\d.])")
_OVERLINE = re.compile(r"\\overline\s*\{\s*(\d+)\s*\}")
_CYCLE = re.compile(r"\((\d{1,40})\)")
_DOTTED = re.compile(r"\\dot\s*(?:\{\s*(\d+)\s*\}|(\d))(?:\s*(\d*)\s*\\dot\s*(?:\{\s*(\d)\s*\}|(\d)))?")
_ELLIPSIS = re.compile(r"\s*(?:\.\.\.|\\ldots)")
_MIXED = re.compile(r"\s*\\frac\s*(?:\{\s*(\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))|\s+(\d+)\s*/\s*(\d+)")
MAX_CYCLE_DIGITS = 60
"""Maximum digits that are searched for a cycle, which takes cubic time."""


def number_at(text: str, at: int) -> tuple[Node, int]:
    """Return the number at a position and where it ends; ParseError if there is none."""
    found = _NUMBER.match(text, at)
    if not found:
        raise ParseError("no number")
    digits, at = found.group(), found.end()
    repeat = (_OVERLINE.match(text, at) or _DOTTED.match(text, at)) if "." in digits else None
    if not repeat and digits[-1] == ".":
        repeat = _CYCLE.match(text, at)
    if repeat:
        return Node("num", value=_repeating(digits, "".join(filter(None, repeat.groups())))), repeat.end()
    if dots := _ELLIPSIS.match(text, at):
        return Node("num", value=_endless(digits)), dots.end()
    node = Node("num", value=Fraction(digits.removesuffix(".")))
    if exponent := _EXPONENT.match(text, at):
        power = Node("pow", (TEN, Node("num", value=Fraction(int(exponent.group(1))))))
        return Node("mul", (node, power)), exponent.end()
    if text[at : at + 1] == "_":
        raise ParseError("a subscript on a number is a base")
    return _mixed(node, text, at) if digits.isdigit() else (node, at)


def _mixed(whole: Node, text: str, at: int) -> tuple[Node, int]:
    r"""Read `1\frac{1}{2}` and `1 1/2` as one and a half."""
    found = _MIXED.match(text, at)
    parts = [int(part) for part in found.groups() if part] if found else []
    if not found or not 0 < parts[0] < parts[1] or text[found.end() : found.end() + 1].isdigit():
        return whole, at
    return Node("num", value=Fraction(whole.value) + Fraction(parts[0], parts[1])), found.end()


def _repeating(text: str, cycle: str) -> Fraction:
    digits = len(text.partition(".")[2])
    start = Fraction("0" + text.rstrip("."))
    return start + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10**digits)


def _endless(text: str) -> Fraction:
    """Read 0.333... as 1/3 and 0.1818... as 2/11; ParseError for 3.14..., whose next digits are unknown."""
    digits = text.partition(".")[2]
    if len(digits) > MAX_CYCLE_DIGITS:
        raise ParseError("too many digits before an ellipsis")
    tail = re.fullmatch(r"(\d*?)(\d+?)\2+", digits)
    if not tail or 2 * len(tail.group(1)) > len(digits):
        raise ParseError("unknown digits after an ellipsis")
    return _repeating(text[: len(text) - len(digits)] + tail.group(1), tail.group(2))
