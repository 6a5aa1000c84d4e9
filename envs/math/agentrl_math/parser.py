"""Parser of cleaned LaTeX or plain arithmetic into a tree; nothing is computed or evaluated as code."""

import re
from collections.abc import Callable
from fractions import Fraction

from agentrl_math.expr import FUNCTIONS, ONE, TEN, Node, ParseError
from agentrl_math.latex import group_at
from agentrl_math.limits import MAX_DEPTH, LimitError
from agentrl_math.prose import GREEK_WORD
from agentrl_math.written import number_at

_GREEK = set(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau "  # noqa: SIM905
    "upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell hbar".split()
)
_PLAIN = re.compile(
    r"(?:sqrt|cis|a(?:rc)?(?:sin|cos|tan)|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|ln|log|exp|pi|abs)(?![a-z]{2})"
)
_ARC = re.compile(r"^a(?:rc)?(?=sin|cos|tan)")
_INFINITE = re.compile(r"(?:[Ii]nfinity|infty|inf|oo)(?![A-Za-z])")
_UNKNOWN_FUNCTIONS = set("fghFGHP")


def parse(text: str) -> Node:
    """Return the tree of a cleaned expression; ParseError if it is not one, LimitError if it is too deep."""
    parser = _Parser(text)
    node = parser.sum()
    parser.space()
    if parser.at < len(text):
        raise ParseError(f"unexpected {text[parser.at : parser.at + 12]!r}")
    return node


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
        """Parse a part after any number of signs."""
        is_negative = False
        while self.peek("+", "-"):
            is_negative ^= self.text[self.at] == "-"
            self.at += 1
        node = part()
        return Node("neg", (node,)) if is_negative else node

    def product(self) -> Node:
        factors, divisors = [self.power()], []
        while True:
            if self.take("*"):
                factors.append(self.signed(self.power))
            elif self.take("/"):
                divisors.append(self.signed(self.power))
            elif self._starts_factor():
                factors.append(self.power())
            else:
                return Node("div", (_product(factors), _product(divisors))) if divisors else _product(factors)

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
        r"""Parse an exponent: a group, or a signed number or symbol with its own ^."""
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
        node, self.at = number_at(self.text, self.at)
        return node

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
        r"""Parse an argument of \frac or \sqrt: a group or one character."""
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
        r"""Parse the argument of a function: a group, or the product up to +, - or the next function."""
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
