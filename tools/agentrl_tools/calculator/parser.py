"""Recursive-descent evaluator with Python's operator precedence. No code is executed."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import re2

from agentrl.env import BadCallError, as_unicode
from agentrl.errors import did_you_mean
from agentrl_tools.calculator.exact import Number, add, divide, fits, floor_divide, modulo, multiply, power
from agentrl_tools.calculator.functions import CONSTANTS, FUNCTIONS, factorial

MAX_CHARACTERS = 1000
MAX_DEPTH = 40
TOKEN: Any = re2.compile(
    r"(?:\s|\pZ)*(?:"
    r"((?:\p{Nd}+\.?\p{Nd}*|\.\p{Nd}+)(?:[eE][+-]?\p{Nd}+)?)|"
    r"([\pL_][\pL\pN_]*|√)|"
    r"(\*\*|//|[-+*/%^!(),]))"
)
SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-"})  # noqa: RUF001 (intended signs)

TERMS: dict[str, Callable[[Number, Number], Number]] = {"+": add, "-": lambda a, b: add(a, -b)}
FACTORS: dict[str, Callable[[Number, Number], Number]] = {
    "*": multiply, "/": divide, "//": floor_divide, "%": modulo,
}  # fmt: skip


def evaluate(expression: str) -> Number:
    """Return the value of an expression; BadCallError names the mistake and its position."""
    if len(expression) > MAX_CHARACTERS:
        raise BadCallError(f"the expression is longer than {MAX_CHARACTERS} characters")
    return Parser(as_unicode(expression).translate(SPELLINGS)).whole()


class Parser:
    """Parser of one expression. `depth` counts open brackets and signs and is bounded, which protects the stack."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.depth = 0
        self.number, self.name, self.sign = "", "", ""
        self.step()

    def step(self) -> None:
        """Read the next token into `number`, `name` or `sign`; all three are empty at the end of the text."""
        match = TOKEN.match(self.text, self.position)
        if match is None and self.text[self.position :].strip():
            raise BadCallError(f"cannot read {self.text[self.position :].strip()[:20]!r}")
        self.number, self.name, self.sign = (part or "" for part in match.groups()) if match else ("", "", "")
        self.position = match.end() if match else len(self.text)

    def whole(self) -> Number:
        """Evaluate the whole text; BadCallError if anything follows the expression."""
        value = self.terms()
        if found := self.found():
            hint = "; write numbers without thousands separators" if found == "," else ""
            raise BadCallError(f"expected an operator before {found!r}{hint}")
        return value

    def terms(self) -> Number:
        """Parse `factors ((+|-) factors)*`."""
        value = self.factors()
        while operation := TERMS.get(self.sign):
            self.step()
            value = operation(value, self.factors())
        return value

    def factors(self) -> Number:
        """Parse `signed ((*|/|//|%) signed)*`."""
        value = self.signed()
        while operation := FACTORS.get(self.sign):
            self.step()
            value = operation(value, self.signed())
        return value

    def signed(self) -> Number:
        """Parse `(+|-) signed` or a power: -2^2 is -4."""
        if self.sign in ("+", "-"):
            is_minus = self.sign == "-"
            self.step()
            value = self.deeper(self.signed)
            return -value if is_minus else value
        return self.raised()

    def raised(self) -> Number:
        """Parse `operand ^ signed`, right-associative: 2^3^2 is 2^9."""
        value = self.operand()
        while self.sign == "!":
            self.step()
            value = factorial(value)
        if self.sign in ("^", "**"):
            self.step()
            value = power(value, self.deeper(self.signed))
        return value

    def operand(self) -> Number:
        """Parse a number, a constant, a call or an expression in brackets."""
        if self.number:
            value: Number = literal(self.number)
            self.step()
            return value
        if self.name:
            return self.named()
        if self.sign != "(":
            found = self.found()
            raise BadCallError(f"expected a number {f'before {found!r}' if found else 'at the end'}")
        self.step()
        value = self.deeper(self.terms)
        self.close()
        return value

    def named(self) -> Number:
        """Parse a constant or a function call."""
        name = self.name
        self.step()
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name not in FUNCTIONS:
            raise BadCallError(f"unknown name {name!r}.{did_you_mean(name, [*FUNCTIONS, *CONSTANTS])}")
        function, minimum, maximum = FUNCTIONS[name]
        arguments = self.arguments(name)
        if not minimum <= len(arguments) <= maximum:
            raise BadCallError(f"{name} takes {minimum if minimum == maximum else f'{minimum} to {maximum}'} values")
        return function(*arguments)

    def arguments(self, name: str) -> list[Number]:
        """Parse `(terms, terms, ...)`."""
        if self.sign != "(":
            raise BadCallError(f"write {name}(...) with brackets")
        values: list[Number] = []
        while not values or self.sign == ",":
            self.step()
            values.append(self.deeper(self.terms))
        self.close()
        return values

    def deeper(self, rule: Callable[[], Number]) -> Number:
        """Apply a rule one nesting level deeper."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise BadCallError(f"nested deeper than {MAX_DEPTH} levels")
        value = rule()
        self.depth -= 1
        return value

    def close(self) -> None:
        """Consume a closing bracket."""
        if self.sign != ")":
            raise BadCallError("a closing bracket is missing")
        self.step()

    def found(self) -> str:
        """Return the current token."""
        return self.number or self.name or self.sign


def literal(text: str) -> Fraction:
    """Return a decimal number exactly; the size of its exponent is checked first."""
    _, _, exponent = text.lower().partition("e")
    fits(10 * (len(text) + abs(int(exponent or 0))) // 3)
    return Fraction(text)
