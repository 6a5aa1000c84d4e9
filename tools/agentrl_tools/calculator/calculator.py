"""The tool: an expression in, its value out."""

from __future__ import annotations

from decimal import Context, Decimal

from agentrl.env import tool
from agentrl_tools.calculator.exact import Number
from agentrl_tools.calculator.parser import evaluate

MAX_DECIMALS = 40
LONG = 10**20
_EXACT = Context(prec=5000)


class Calculator:
    """Offers `calculator`. It keeps nothing, runs no code, and answers within milliseconds whatever is asked."""

    @tool
    def calculator(self, expression: str) -> str:
        """Compute the value of an arithmetic expression, exactly where possible (a leading ≈ marks a rounded value).

        Args:
            expression: numbers, + - * / // % ^ ! and brackets; sqrt, root(x, n), abs, floor, ceil, round(x, digits),
                min, max, gcd, lcm, comb, perm, exp, ln, log(x, base), sin, cos, tan, asin, acos, atan, pi, e
        """
        return calculate(expression)


def calculate(expression: str) -> str:
    """The value: `12`, `0.125`, `1/3 ≈ 0.333333333333333` or `≈ 1.4142135623731`; BadCallError says what is wrong."""
    return show(evaluate(expression))


def show(value: Number) -> str:
    """A whole number or a finite decimal as such; a fraction with its rounded value, or that alone where it is long."""
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
    """How many decimals a fraction with this denominator has; None where they never end or are too many to show."""
    for places in range(1, MAX_DECIMALS + 1):
        if 10**places % denominator == 0:
            return places
    return None
