"""Comparison of quantities: units, percent, rounded decimals."""

import re
from fractions import Fraction

from agentrl_math.expr import Node, ParseError, symbols
from agentrl_math.forms import Answer, Scalar
from agentrl_math.judge import Judge, small
from agentrl_math.measures import differ
from agentrl_math.numerals import rounds
from agentrl_math.parser import parse
from agentrl_math.policy import Policy
from agentrl_math.units import with_letters

HUNDRED = Node("num", value=Fraction(100))
EXACTLY = 1_000_000
"""Number of decimals of anything but a decimal."""
_DECIMAL = re.compile(r"-?\d{0,400}(?:\.(\d{0,400}))?(?:\s*\*\s*10\s*\^\s*\{?\s*(-?\d{1,3})\s*\}?)?(?<=[\d.}])")


def same_quantity(gold: Scalar, given: Scalar, judge: Judge, policy: Policy) -> bool:
    """Return whether two numbers with units are the same quantity."""
    if "percent" in (gold.unit, given.unit) and "" in (gold.unit, given.unit):
        return _same_percent(gold, given, judge, policy)
    gold, given = _with_letters(gold, given), _with_letters(given, gold)
    if differ(gold.unit, given.unit, policy.units) or _in_other_order(gold.text, given.text):
        return False
    return judge.equal(gold.node, given.node, policy.rounding) or _is_rounded(gold, given)


def _same_percent(gold: Scalar, given: Scalar, judge: Judge, policy: Policy) -> bool:
    if policy.percent == "required":
        return False
    if judge.equal(_value(gold), _value(given), policy.rounding) or _is_rounded(gold, given):
        return True
    plain = given if gold.unit == "percent" else gold
    is_bare = policy.percent == "optional" and _exceeds_one(plain.node)
    return is_bare and judge.equal(gold.node, given.node, policy.rounding)


def _value(scalar: Scalar) -> Node:
    return Node("div", (scalar.node, HUNDRED)) if scalar.unit == "percent" else scalar.node


def _exceeds_one(node: Node) -> bool:
    value = small(node)
    return isinstance(value, Fraction) and abs(value) > 1


def _in_other_order(gold: str, given: str) -> bool:
    """Return whether both are capitals that name points or digits, in a different order: AB and BA."""
    return all(re.fullmatch("[A-Z]{2,}", text.strip()) for text in (gold, given)) and gold.split() != given.split()


def places(part: Answer) -> int:
    """Return the number of decimals of a number as written."""
    found = _DECIMAL.fullmatch(part.text.strip()) if isinstance(part, Scalar) else None
    if not found:
        return EXACTLY
    return len(found.group(1) or "") - int(found.group(2) or 0)


def _with_letters(one: Scalar, other: Scalar) -> Scalar:
    """Read the letter of `5 V` as a unit if the other number has a unit."""
    if one.unit or not other.unit or not symbols(one.node) or not (found := with_letters(one.text)):
        return one
    try:
        return Scalar(parse(found[0]), found[1], found[0])
    except ParseError:
        return one


def _is_rounded(gold: Scalar, given: Scalar) -> bool:
    """Return whether one is a decimal of ten digits or more that rounds the other, a fraction."""
    for decimal, other in ((gold, given), (given, gold)):
        value = small(other.node)
        if isinstance(value, Fraction):
            scale = Fraction(100 if decimal.unit == "percent" else 1, 100 if other.unit == "percent" else 1)
            if rounds(decimal.text, value * scale):
                return True
    return False
