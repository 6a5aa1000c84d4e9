"""The `calculator` tool and how it prints numbers."""

from __future__ import annotations

from decimal import Context, Decimal

from agentrl.env import tool
from agentrl_tools.calculator.exact import Number
from agentrl_tools.calculator.parser import evaluate

MAX_DECIMALS = 40
LONG = 10**20
_EXACT = Context(prec=5000)


class Calculator:
    """Toolset with `calculator`: stateless, executes no code, and returns within milliseconds for any input."""

    @tool
    def calculator(self, expression: str) -> str:
        """Compute the value of an arithmetic expression, exactly where possible (a leading ≈ marks a rounded value).

        Args:
            expression: numbers, + - * / // % ^ ! and brackets; sqrt, root(x, n), abs, floor, ceil, round(x, digits),
                min, max, gcd, lcm, comb, perm, exp, ln, log(x, base), sin, cos, tan, asin, acos, atan, pi, e
        """
        return calculate(expression)


def calculate(expression: str) -> str:
    """Return the value as `12`, `0.125`, `1/3 ≈ 0.333333333333333` or `≈ 1.4142135623731`; BadCallError if invalid."""
    return show(evaluate(expression))


def show(value: Number) -> str:
    """Format a number: integers and finite decimals exactly, fractions with a rounded value (long ones only that)."""
    if isinstance(value, float):
        return f"≈ {value:.14g}"
    if value.denominator == 1:
        return str(value.numerator)
    quotient = _EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))
    if (places := _decimals(value.denominator)) is not None:
        return f"{quotient:.{places}f}"
    is_short = max(abs(value.numerator), value.denominator) < LONG
    return f"{f'{value.numerator}/{value.denominator} ' if is_short else ''}≈ {quotient:.15g}"


def _decimals(denominator: int) -> int | None:
    """Return the number of decimals of a fraction with this denominator; None if infinite or above MAX_DECIMALS."""
    for places in range(1, MAX_DECIMALS + 1):
        if 10**places % denominator == 0:
            return places
    return None
