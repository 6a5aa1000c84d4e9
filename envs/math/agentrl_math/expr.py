"""Cleaned LaTeX or plain arithmetic becomes a tree; nothing is computed here and nothing is ever evaluated as code."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from agentrl_math.latex import group_at
from agentrl_math.limits import MAX_DEPTH, LimitError
from agentrl_math.prose import GREEK_WORD


class ParseError(ValueError):
    """The text is no expression of this grammar."""


@dataclass(frozen=True)
class Node:
    """`op` applied to `args`; leaves are num (a Fraction), sym (a name), const (pi, e, i) and inf."""

    op: str
    args: tuple["Node", ...] = ()
    value: Fraction | str = ""


ZERO, ONE, TEN = (Node("num", value=Fraction(n)) for n in (0, 1, 10))
TRIG = {"sin", "cos", "tan", "cot", "sec", "csc"}
FUNCTIONS = TRIG | {f"arc{name}" for name in TRIG} | {"sinh", "cosh", "tanh", "ln", "log", "exp"}
_GREEK = set(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau "  # noqa: SIM905
    "upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell hbar".split()
)
_PLAIN = re.compile(
    r"(?:sqrt|cis|a(?:rc)?(?:sin|cos|tan)|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|ln|log|exp|pi|abs)(?![a-z]{2})"
)
_ARC = re.compile(r"^a(?:rc)?(?=sin|cos|tan)")
_INFINITE = re.compile(r"(?:[Ii]nfinity|infty|inf|oo)(?![A-Za-z])")
_NUMBER = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)")
_EXPONENT = re.compile(r"[eE]([+-]?\d{1,6})(?![\d.])")
_OVERLINE = re.compile(r"\\overline\s*\{\s*(\d+)\s*\}")
_CYCLE = re.compile(r"\((\d{1,40})\)")
_DOTTED = re.compile(r"\\dot\s*(?:\{\s*(\d+)\s*\}|(\d))(?:\s*(\d*)\s*\\dot\s*(?:\{\s*(\d)\s*\}|(\d)))?")
_ELLIPSIS = re.compile(r"\s*(?:\.\.\.|\\ldots)")
MAX_CYCLE_DIGITS = 60
"""How many digits are searched for a cycle, which takes their cube."""
_UNKNOWN_FUNCTIONS = set("fghFGHP")


def parse(text: str) -> Node:
    """The tree of a cleaned expression; ParseError when it is none, LimitError when it is too deep."""
    parser = _Parser(text)
    node = parser.sum()
    parser.space()
    if parser.at < len(text):
        raise ParseError(f"unexpected {text[parser.at : parser.at + 12]!r}")
    return node


def symbols(node: Node) -> frozenset[str]:
    """The names of the free symbols."""
    if node.op == "sym":
        return frozenset([str(node.value)])
    return frozenset[str]().union(*(symbols(arg) for arg in node.args))


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth, self.bars = text, 0, 0, 0

    def space(self) -> None:
        while self.text[self.at : self.at + 1] == " ":
            self.at += 1

    def peek(self, *words: str) -> bool:
        self.space()
        return self.text.startswith(words, self.at)

    def take(self, word: str) -> bool:
        if not self.peek(word):
            return False
        self.at += len(word)
        return True

    def need(self, word: str) -> None:
        if not self.take(word):
            raise ParseError(f"expected {word!r} at {self.at}")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def sum(self) -> Node:
        terms = [self.signed(self.product)]
        while self.peek("+", "-"):
            terms.append(self.signed(self.product))
        return terms[0] if len(terms) == 1 else Node("add", tuple(terms))

    def signed(self, part: Callable[[], Node]) -> Node:
        """A part behind any number of signs."""
        is_negative = False
        while self.peek("+", "-"):
            is_negative ^= self.text[self.at] == "-"
            self.at += 1
        node = part()
        return Node("neg", (node,)) if is_negative else node

    def product(self) -> Node:
        above, below = [self.power()], []
        while True:
            if self.take("*"):
                above.append(self.signed(self.power))
            elif self.take("/"):
                below.append(self.signed(self.power))
            elif self._starts_factor():
                above.append(self.power())
            else:
                return Node("div", (_product(above), _product(below))) if below else _product(above)

    def _starts_factor(self) -> bool:
        self.space()
        rest = self.text[self.at : self.at + 8]
        if not rest or rest[0].isdigit() or rest[0] == ".":
            return bool(rest) and self.text[self.at - 1] in ")]}!"
        if rest[0] == "|":
            return self.bars == 0
        return rest[0].isalpha() or rest[0] in "([{" or (rest[0] == "\\" and not rest.startswith(_CLOSERS))

    def power(self) -> Node:
        return self.postfix(self.base())

    def postfix(self, node: Node) -> Node:
        for _ in range(MAX_DEPTH):
            if self.peek("^"):
                self.at += 1
                node = self.raised(node)
            elif self.peek("!!"):
                self.at += 2
                node = Node("factorial2", (node,))
            elif self.peek("!"):
                self.at += 1
                node = Node("factorial", (node,))
            else:
                return node
        raise LimitError("too many exponents or factorials in a row")

    def raised(self, node: Node) -> Node:
        if self.take("\\circ"):
            return Node("mul", (node, Node("div", (Node("const", value="pi"), Node("num", value=Fraction(180))))))
        return Node("pow", (node, self.script()))

    def script(self) -> Node:
        r"""What ^ holds: a group, or a signed number or symbol with its own ^."""
        self.space()
        if self.peek("{"):
            return self.group("{", "}")
        negative = False
        while self.take("-"):
            negative = not negative
        parts = [self.base()]
        while self.take("^"):
            parts.append(self.group("{", "}") if self.peek("{") else self.base())
        if len(parts) > MAX_DEPTH:
            raise LimitError("too many exponents in a row")
        node = parts.pop()
        while parts:
            node = Node("pow", (parts.pop(), node))
        return Node("neg", (node,)) if negative else node

    def group(self, opening: str, closing: str) -> Node:
        self.need(opening)
        bars, self.bars = self.bars, 0
        node = self.sum()
        self.bars = bars
        self.need(closing)
        return node

    def base(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise LimitError("nested too deeply")
        node = self._base()
        self.depth -= 1
        return node

    def _base(self) -> Node:
        self.space()
        char = self.text[self.at : self.at + 1]
        if char.isdigit() or char == ".":
            return self.number()
        for opening, closing in (("(", ")"), ("[", "]"), ("{", "}")):
            if char == opening:
                return self.group(opening, closing)
        if char == "|":
            return self.absolute()
        if char == "\\":
            return self.command()
        if char.isalpha() and char.isascii():
            return self.name()
        raise ParseError(f"unexpected {char!r}")

    def absolute(self) -> Node:
        self.need("|")
        self.bars += 1
        node = self.sum()
        self.bars -= 1
        self.need("|")
        return Node("abs", (node,))

    def number(self) -> Node:
        found = self.match(_NUMBER)
        if not found:
            raise ParseError("no number")
        text = found.group()
        if "." in text and (repeat := self.match(_OVERLINE) or self.match(_DOTTED)):
            return Node("num", value=_repeating(text, "".join(filter(None, repeat.groups()))))
        if text[-1] == "." and (repeat := self.match(_CYCLE)):
            return Node("num", value=_repeating(text, repeat.group(1)))
        if self.match(_ELLIPSIS):
            return Node("num", value=_endless(text))
        node = Node("num", value=Fraction(text if text[-1] != "." else text[:-1]))
        if exponent := self.match(_EXPONENT):
            power = Node("pow", (TEN, Node("num", value=Fraction(int(exponent.group(1))))))
            return Node("mul", (node, power))
        if self.text[self.at : self.at + 1] == "_":
            raise ParseError("a subscript on a number is a base")
        return self.mixed(node) if text.isdigit() else node

    def mixed(self, whole: Node) -> Node:
        r"""`1\frac{1}{2}` and `1 1/2` are one and a half."""
        found = re.compile(
            r"\s*\\frac\s*(?:\{\s*(\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))|\s+(\d+)\s*/\s*(\d+)"
        ).match(self.text, self.at)
        parts = [int(part) for part in found.groups() if part] if found else []
        if not found or not 0 < parts[0] < parts[1] or self.text[found.end() : found.end() + 1].isdigit():
            return whole
        self.at = found.end()
        return Node("num", value=Fraction(whole.value) + Fraction(parts[0], parts[1]))

    def name(self) -> Node:
        if self.match(_INFINITE):
            return Node("inf")
        if found := self.match(_PLAIN):
            return self.function(_ARC.sub("arc", found.group()))
        if found := self.match(GREEK_WORD):
            return self.symbol("\\" + found.group())
        letter = self.text[self.at]
        self.at += 1
        if letter in _UNKNOWN_FUNCTIONS and self.text[self.at : self.at + 1] == "(":
            return Node("unknown", (self.group("(", ")"),), letter)
        return self.symbol(letter)

    def symbol(self, name: str) -> Node:
        if self.text[self.at : self.at + 1] == "_":
            self.at += 1
            name += "_" + self.subscript()
        while self.text[self.at : self.at + 1] == "'":
            self.at += 1
            name += "'"
        return Node("const", value=name) if name in ("e", "i") else Node("sym", value=name)

    def subscript(self) -> str:
        if grouped := group_at(self.text, self.at):
            self.at = grouped[1]
            return grouped[0].replace(" ", "")
        found = self.match(re.compile(r"\\[A-Za-z]+|\w"))
        if not found:
            raise ParseError("empty subscript")
        return found.group()

    def command(self) -> Node:
        found = self.match(re.compile(r"\\([A-Za-z]+)"))
        name = found.group(1) if found else ""
        if name in ("infty", "pi") or name in FUNCTIONS or name in ("sqrt", "lg", "cis"):
            return Node("inf") if name == "infty" else self.function(name)
        if name in ("frac", "binom"):
            return Node("div" if name == "frac" else "binom", (self.argument(), self.argument()))
        if name in _GREEK:
            return self.symbol("\\" + name)
        if name in ("lfloor", "lceil"):
            node = self.sum()
            self.need("\\r" + name[1:])
            return Node(name[1:], (node,))
        if name == "overline" and (grouped := group_at(self.text, self.at)):
            self.at = grouped[1]
            return Node("sym", value=f"\\overline{{{grouped[0].strip()}}}")
        raise ParseError(f"unknown command \\{name}")

    def argument(self) -> Node:
        r"""An argument of \frac or \sqrt: a group or one character."""
        self.space()
        char = self.text[self.at : self.at + 1]
        if char == "{":
            return self.group("{", "}")
        if char.isdigit():
            self.at += 1
            return Node("num", value=Fraction(int(char)))
        return self.base()

    def function(self, name: str) -> Node:
        if name == "pi":
            return Node("const", value="pi")
        if name == "sqrt":
            return self.root()
        if name == "lg":
            return Node("log", (self.applied(), TEN))
        if name == "cis":
            angle = (self.applied(),)
            return Node("add", (Node("cos", angle), Node("mul", (Node("const", value="i"), Node("sin", angle)))))
        base = power = None
        while self.peek("^", "_"):
            raised = self.text[self.at] == "^"
            self.at += 1
            power, base = (self.script(), base) if raised else (power, self.script())
        if base is not None and name != "log":
            raise ParseError(f"{name} has no base")
        if power is not None and power == Node("neg", (ONE,)):
            name, power = "arc" + name, None
        node = Node(name, (self.applied(),) + ((base,) if base else ()))
        return Node("pow", (node, power)) if power is not None else node

    def root(self) -> Node:
        self.space()
        index = self.group("[", "]") if self.peek("[") else Node("num", value=Fraction(2))
        self.space()
        radicand = self.number() if self.text[self.at : self.at + 1].isdigit() else self.argument()
        return Node("root", (radicand, index))

    def applied(self) -> Node:
        r"""What a function is applied to: a group, or the product up to + or - or the next function."""
        self.space()
        if self.peek("(", "{", "["):
            return self.postfix(self.base()) if self.peek("{") else self.base()
        factors = [self.power()]
        while self._starts_factor() and not self.text.startswith(_FUNCTION_WORDS, self.at) and not self.peek("("):
            factors.append(self.power())
        return _product(factors)


_CLOSERS = ("\\rfloor", "\\rceil", "\\}", "\\rangle")
_FUNCTION_WORDS = tuple("\\" + name for name in FUNCTIONS) + tuple(FUNCTIONS)


def _product(factors: list[Node]) -> Node:
    return factors[0] if len(factors) == 1 else Node("mul", tuple(factors))


def _repeating(text: str, cycle: str) -> Fraction:
    digits = len(text.partition(".")[2])
    start = Fraction("0" + text.rstrip("."))
    return start + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10**digits)


def _endless(text: str) -> Fraction:
    """0.333... is a third, 0.1818... two elevenths; which digits 3.14... goes on with nobody knows."""
    digits = text.partition(".")[2]
    if len(digits) > MAX_CYCLE_DIGITS:
        raise ParseError("too many digits before an ellipsis")
    tail = re.fullmatch(r"(\d*?)(\d+?)\2+", digits)
    if not tail or 2 * len(tail.group(1)) > len(digits):
        raise ParseError("digits left open by an ellipsis")
    return _repeating(text[: len(text) - len(digits)] + tail.group(1), tail.group(2))
