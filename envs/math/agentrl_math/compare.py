"""Whether two answers are the same answer: structure first, then the numbers through a `Judge`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from agentrl_math.answer import Answer, Based, Items, Matrix, Opaque, Relation, Scalar, Union, Words
from agentrl_math.exact import InexactError, TooLargeError, UndefinedError, exact, huge
from agentrl_math.expr import Node, symbols
from agentrl_math.latex import squeeze, words
from agentrl_math.limits import FAST_BITS
from agentrl_math.policy import Policy
from agentrl_math.prose import is_formula, lost_signs
from agentrl_math.units import differ

_BEYOND = re.compile(
    r"\\(?:sum|i*int|oint|prod|lim|gcd|lcm|max|min|operatorname|bmod|mod|pmod|det|cap|partial)(?![a-z])"
)


def is_beyond(text: str) -> bool:
    """Whether a formula has what our grammar leaves to math-verify; whatever else it cannot read is no formula."""
    return bool(_BEYOND.search(text))


class UndecidedError(Exception):
    """This judge cannot tell; a slower one may."""


class GoldUndefinedError(Exception):
    """The gold has no value."""


class Judge(Protocol):
    """Decides on expressions; every method may raise UndecidedError, GoldUndefinedError or UndefinedError."""

    def equal(self, gold: Node, given: Node, rounding: float | int | str) -> bool:
        """Whether two expressions have one value, under the rounding policy."""

    def proportional(self, gold: Node, given: Node, positive: bool) -> bool:
        """Whether one expression is a constant times the other, a positive one if asked."""

    def opaque(self, gold: str, given: str) -> bool:
        """Whether two formulas outside the grammar are equal."""

    def settles(self, node: Node) -> bool:
        """Whether an expression has a value that can be computed."""

    def settles_opaque(self, text: str) -> bool:
        """The same for a formula outside the grammar."""


HUNDRED = Node("num", value=Fraction(100))
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!=", "~": "~", "==": "=="}
_SOLVED_NAME = re.compile(r"\s*(?:(?![ei]\s*$)[A-Za-z]|[A-Z]{2,}|\\(?!pi)[A-Za-z]+)(?:_\w|_\{\w+\})?'*\s*")
EXACTLY = 1_000_000
"""The decimals of what is no decimal."""
_DECIMAL = re.compile(r"-?\d{0,400}(?:\.(\d{0,400}))?(?:\s*\*\s*10\s*\^\s*\{?\s*(-?\d{1,3})\s*\}?)?(?<=[\d.}])")
_CALL = re.compile(r"[A-Za-z]\w*'*(?:\^\{-1\})?\([^()]*\)|\\frac\s*\{d[^{}]*\}\s*\{d[^{}]*\}")
_LISTS = ("list", "set", "and")
_NAME_PARTS = re.compile(
    r"\\frac\s*\{d\^?\d?[a-z]\}\s*\{d[a-z]\^?\d?\}|(?<=[A-Za-z])\^\{-1\}(?=\()|\\text\s*\{[^{}]*\}|_\{[^{}]*\}|_\w|\\(?:alpha|beta|gamma|theta|lambda|mu|phi|sigma|omega|Delta|angle|triangle|"
    r"measuredangle|overline|widehat|hat|vec|ell)(?![a-z])|(?<=[A-Za-z])\([^()=]*\)|[{}]"
)


@dataclass(frozen=True)
class Comparison:
    """Compares under one policy with one judge."""

    judge: Judge
    policy: Policy

    def same(self, gold: Answer, given: Answer) -> bool:
        """Whether `given` is the answer `gold`."""
        gold, given = _between(gold), _between(given)
        if isinstance(gold, Relation) or isinstance(given, Relation):
            return self._related(gold, given)
        if isinstance(gold, Words | Opaque) or isinstance(given, Words | Opaque):
            return self._texts(gold, given)
        if isinstance(gold, Union) or isinstance(given, Union):
            return self._unions(gold, given)
        if isinstance(gold, Items) or isinstance(given, Items):
            return self._items(gold, given)
        if isinstance(gold, Matrix) and isinstance(given, Matrix):
            return [len(row) for row in gold.rows] == [len(row) for row in given.rows] and all(
                self._ordered(a, b) for a, b in zip(gold.rows, given.rows, strict=True)
            )
        if isinstance(gold, Scalar) and isinstance(given, Scalar):
            return self._scalars(gold, given)
        return isinstance(gold, Based) and gold == given

    def _scalars(self, gold: Scalar, given: Scalar) -> bool:
        if "percent" in (gold.unit, given.unit) and gold.unit != given.unit:
            return self._percent(gold, given)
        if differ(gold.unit, given.unit, self.policy.units) or _in_other_order(gold.text, given.text):
            return False
        return self._equal(gold.node, given.node)

    def _percent(self, gold: Scalar, given: Scalar) -> bool:
        if self.policy.percent == "required":
            return False
        if self._equal(_value(gold), _value(given)):
            return True
        plain = given if gold.unit == "percent" else gold
        return self.policy.percent == "optional" and _exceeds_one(plain.node) and self._equal(gold.node, given.node)

    def _equal(self, gold: Node, given: Node) -> bool:
        return self.judge.equal(gold, given, self.policy.rounding)

    def _texts(self, gold: Answer, given: Answer) -> bool:
        a, b = _text(gold), _text(given)
        if a is None or b is None:
            return False
        if isinstance(gold, Words) or isinstance(given, Words):
            return _said_alike(a, b)
        return squeeze(a) == squeeze(b) or (is_beyond(a + b) and self.judge.opaque(a, b))

    def _unions(self, gold: Answer, given: Answer) -> bool:
        a, b = _pieces(gold), _pieces(given)
        return a is not None and b is not None and self._unordered(a, b)

    def _items(self, gold: Answer, given: Answer) -> bool:
        a, b = _as_items(gold), _as_items(given)
        if a is None or b is None:
            return False
        if a.kind in _LISTS and b.kind in _LISTS:
            ordered = (self.policy.order == "strict" and a.kind == b.kind == "list") or _named(a) != _named(b)
            if "set" in (a.kind, b.kind) and (a.kind == b.kind or len(a.members) != len(b.members)):
                return self._unordered(self._distinct(a.members), self._distinct(b.members))
            return (self._ordered if ordered else self._unordered)(a.members, b.members)
        if {a.kind, b.kind} == {"list", "()"}:
            return self._assigned(a, b)
        if a.kind != b.kind and {a.kind, b.kind} != {"list", "[]"}:
            return False
        if a.kind != b.kind and len(a.members) < 3:
            return False
        free = self.policy.order == "free" and a.kind in ("()", "[]")
        return (self._unordered if free else self._ordered)(a.members, b.members)

    def _distinct(self, members: Sequence[Answer]) -> list[Answer]:
        found: list[Answer] = []
        for member in members:
            if not any(self._alike(other, member) for other in found):
                found.append(member)
        return found

    def _alike(self, one: Answer, other: Answer) -> bool:
        """Whether two parts of one answer are the same; neither is the gold."""
        try:
            return self.same(one, other)
        except GoldUndefinedError:
            return False

    def _assigned(self, gold: Items, given: Items) -> bool:
        """`x = 1, y = 2` is the point (1, 2)."""
        bare, point = (gold, given) if gold.kind == "list" else (given, gold)
        values = _by_name(bare)
        if values is None:
            return False
        return self._ordered(values, point.members) if bare is gold else self._ordered(point.members, values)

    def _ordered(self, gold: Sequence[Answer], given: Sequence[Answer]) -> bool:
        return len(gold) == len(given) and all(self.same(a, b) for a, b in zip(gold, given, strict=True))

    def _unordered(self, gold: Sequence[Answer], given: Sequence[Answer]) -> bool:
        if len(gold) != len(given):
            return False
        left = list(given)
        for member in gold:
            found = next((other for other in left if self.same(member, other)), None)
            if found is None:
                return False
            left.remove(found)
        return True

    def _related(self, gold: Answer, given: Answer) -> bool:
        if isinstance(gold, Relation) and isinstance(given, Relation):
            a, b = _membership(gold), _membership(given)
            return self._relations(gold, given) if a is gold and b is given else self.same(a, b)
        relation, other = (gold, given) if isinstance(gold, Relation) else (given, gold)
        assert isinstance(relation, Relation)
        as_set = _interval(relation)
        if as_set is not None:
            return not isinstance(other, Scalar) and self._directed(relation is gold, as_set, other)
        pieces = _pieces(relation) if isinstance(other, Union) else None
        if pieces:
            return self._directed(relation is gold, Union(pieces), other)
        member = _membership(relation)
        if member is not relation:
            return self._directed(relation is gold, member, other)
        return self._values(relation, other, relation is gold)

    def _directed(self, is_gold: bool, one: Answer, other: Answer) -> bool:
        return self.same(one, other) if is_gold else self.same(other, one)

    def _values(self, relation: Relation, other: Answer, is_gold: bool) -> bool:
        """`x = 5`, `m+n = 2+3 = 5` and `x = 1/3 ≈ 0.333` give a value; every side of an = must have it."""
        if not set(relation.ops) <= {"=", "~"}:
            return False
        named = _is_name(relation.texts[0]) and not _names(relation.sides[0]) & _names(other)
        if is_gold and "+" in relation.texts[0]:
            named = False  # x + y = 2 is a line, whose answer is not 2
        start, end = (1 if named else 0), len(relation.sides)
        is_turned = _is_variable(relation.texts[-1]) and not _is_variable(relation.texts[0])
        if not named and is_turned and not _names(relation.sides[-1]) & _names(other):
            end -= 1
        segments: list[list[Answer]] = [[]]
        for op, side, text in list(zip(("=", *relation.ops), relation.sides, relation.texts, strict=True))[start:end]:
            if op == "~" and segments[-1]:
                segments.append([])
            if not (named and side is not relation.sides[end - 1] and _is_variable(text)):
                segments[-1].append(side)  # the b of a = b = 5 is another name
        if len(segments) == 1:
            return all(self._directed(is_gold, side, other) for side in segments[0])
        return self._rounded(segments, other, is_gold)

    def _rounded(self, segments: list[list[Answer]], other: Answer, is_gold: bool) -> bool:
        """`1/3 ≈ 0.333 ≈ 0.33`: all round the most precise part; that one, or a rounded one, is the other answer."""
        finest = max(segments, key=lambda segment: max(map(_places, segment)))
        coarser = [segment for segment in segments if segment is not finest]
        if not all(self._alike(finest[0], side) for side in finest[1:]):
            return False
        if not all(self._rounds(finest[0], side) for segment in coarser for side in segment):
            return False
        return any(all(self._directed(is_gold, side, other) for side in segment) for segment in segments)

    def _rounds(self, precise: Answer, part: Answer) -> bool:
        """Whether a number is another one to the decimals that it shows."""
        places = _places(part)
        if not isinstance(precise, Scalar) or not isinstance(part, Scalar) or places == EXACTLY:
            return False
        if differ(precise.unit, part.unit, self.policy.units):
            return False
        scale = Node("num", value=Fraction(10) ** min(places, 0))
        a, b = (Node("mul", (side.node, scale)) for side in (precise, part))
        try:
            return self.judge.equal(a, b, max(places, 0))
        except GoldUndefinedError:
            return False

    def _relations(self, gold: Relation, given: Relation) -> bool:
        a, b = _interval(gold), _interval(given)
        if a is not None and b is not None:
            return words(_variable(gold)) == words(_variable(given)) and self.same(a, b)
        if len(gold.ops) > 1 and gold.ops == given.ops:
            return self._ordered(gold.sides, given.sides)
        if len(gold.ops) > 1 or len(given.ops) > 1:
            return self._chain(gold, given)
        if (
            gold.ops[0] in ("=", "in")
            and given.ops[0] in ("=", "in")
            and squeeze(gold.texts[0]) == squeeze(given.texts[0])
            and (gold.ops == given.ops or not _is_constant(given.sides[1]))
        ):
            return self.same(gold.sides[1], given.sides[1])
        if solved := _solution(gold):
            other = _solution(given)
            return other is not None and other[:2] == solved[:2] and self.same(solved[2], other[2])
        return self._moved(gold, given)

    def _chain(self, gold: Relation, given: Relation) -> bool:
        """`y = 2x + x = 3x` for `y = 3x`: each step must hold."""
        if gold.ops != ("=",) or not set(given.ops) <= {"=", "~"} or squeeze(gold.texts[0]) != squeeze(given.texts[0]):
            return False
        if "~" in given.ops:
            return self._values(given, gold.sides[1], is_gold=False)
        return all(self.same(gold.sides[1], side) for side in given.sides[1:])

    def _moved(self, gold: Relation, given: Relation) -> bool:
        """Whether the differences of the sides are proportional: 2x + 4y = 3 and y = -x/2 + 3/4."""
        op = given.ops[0]
        sign = 1 if gold.ops[0] == op else -1
        if gold.ops[0] not in (op, _FLIPPED.get(op)) or op not in ("=", "!=", "<", ">", "<=", ">="):
            return False
        a, b = _difference(gold), _difference(given)
        if a is None or b is None:
            return False
        b = b if sign == 1 else Node("neg", (b,))
        return self.judge.proportional(a, b, positive=op not in ("=", "!="))


@dataclass(frozen=True)
class Quick:
    """Decides in this process what small rationals decide."""

    def equal(self, gold: Node, given: Node, rounding: float | int | str) -> bool:
        """By exact arithmetic."""
        a, b = infinity(gold), infinity(given)
        if a or b:
            return a == b
        left, right = _small(gold), _small(given)
        if isinstance(left, UndefinedError):
            raise GoldUndefinedError
        if left is None or right is None:
            return _quick_towers(gold, given, left, right)
        return not isinstance(right, UndefinedError) and close(left, right, rounding)

    def proportional(self, gold: Node, given: Node, positive: bool) -> bool:  # noqa: ARG002
        """By identity."""
        if gold == given:
            return True
        raise UndecidedError

    def opaque(self, gold: str, given: str) -> bool:  # noqa: ARG002
        """Never."""
        raise UndecidedError

    def settles(self, node: Node) -> bool:  # noqa: ARG002
        """Never."""
        raise UndecidedError

    def settles_opaque(self, text: str) -> bool:  # noqa: ARG002
        """Never."""
        raise UndecidedError


def close(gold: Fraction, given: Fraction, rounding: float | int | str) -> bool:
    """Equality of rationals under the rounding policy."""
    if rounding == "exact" or isinstance(rounding, str):
        return gold == given
    if isinstance(rounding, int):
        return _rounded(gold, rounding) == _rounded(given, rounding)
    return abs(gold - given) <= Fraction(rounding) * abs(gold)


def _rounded(value: Fraction, decimals: int) -> int:
    """Half away from zero, as in school."""
    scaled = abs(value) * 10**decimals + Fraction(1, 2)
    whole = int(scaled.numerator // scaled.denominator)
    return -whole if value < 0 else whole


def infinity(node: Node) -> int:
    """1 or -1 for an infinity, else 0."""
    if node.op == "neg":
        return -infinity(node.args[0])
    return 1 if node.op == "inf" else 0


def _small(node: Node) -> Fraction | UndefinedError | None:
    try:
        return exact(node, FAST_BITS)
    except UndefinedError as undefined:
        return undefined
    except (InexactError, TooLargeError):
        return None


def _quick_towers(gold: Node, given: Node, left: Fraction | None, right: Fraction | UndefinedError | None) -> bool:
    """A small rational differs from a tower; anything else is for a slower judge."""
    if (left is not None and huge(given)) or (isinstance(right, Fraction) and huge(gold)):
        return False
    raise UndecidedError


def _value(scalar: Scalar) -> Node:
    return Node("div", (scalar.node, HUNDRED)) if scalar.unit == "percent" else scalar.node


def _exceeds_one(node: Node) -> bool:
    value = _small(node)
    return isinstance(value, Fraction) and abs(value) > 1


def _text(answer: Answer) -> str | None:
    if isinstance(answer, Words | Opaque | Scalar):
        return answer.text
    return None


def _said_alike(gold: str, given: str) -> bool:
    """Whether two texts have the same words and no sign that words do not show; the case of symbols counts."""
    a, b = words(gold), words(given)
    if a != b or not a or lost_signs(gold) or lost_signs(given):
        return False
    return len(a) == 1 or not (is_formula(gold) and is_formula(given)) or squeeze(gold) == squeeze(given)


def _in_other_order(gold: str, given: str) -> bool:
    """Whether these name points or digits by capitals, AB as against BA, rather than multiply."""
    return all(re.fullmatch("[A-Z]{2,}", text.strip()) for text in (gold, given)) and gold.split() != given.split()


def _places(part: Answer) -> int:
    """How many decimals a number shows."""
    found = _DECIMAL.fullmatch(part.text.strip()) if isinstance(part, Scalar) else None
    if not found:
        return EXACTLY
    return len(found.group(1) or "") - int(found.group(2) or 0)


def _as_items(answer: Answer) -> Items | None:
    if isinstance(answer, Items):
        return answer
    return Items("set", (answer,)) if isinstance(answer, Scalar | Based) else None


def _by_name(items: Items) -> tuple[Answer, ...] | None:
    """The values of `y = 2, x = 1` in the order of the names."""
    return tuple(value for _, value in sorted(_pairs(items), key=lambda pair: pair[0])) if _named(items) else None


def _named(items: Items) -> bool:
    """Whether the members give values to different names: `a = 2, b = 3`."""
    names = [name for name, _ in _pairs(items)]
    return len(names) == len(items.members) > 1 and len(set(names)) == len(names) and all(map(_is_variable, names))


def _pairs(items: Items) -> list[tuple[str, Answer]]:
    return [(m.texts[0], m.sides[1]) for m in items.members if isinstance(m, Relation) and m.ops == ("=",)]


def _between(answer: Answer) -> Answer:
    """`x > 1 and x < 2` as `1 < x < 2`; any other answer as it is."""
    if not isinstance(answer, Items) or answer.kind != "and" or len(answer.members) != 2:
        return answer
    bounds = [bound for bound in map(_bound, answer.members) if bound]
    low = next((bound for bound in bounds if bound[0][0] == ">"), None)
    high = next((bound for bound in bounds if bound[0][0] == "<"), None)
    if low is None or high is None or low[1] != high[1]:
        return answer
    variable = Scalar(Node("sym", value=low[1]), text=low[1])
    return Relation((_FLIPPED[low[0]], high[0]), (low[2], variable, high[2]), ("", low[1], ""))


def _bound(relation: Answer) -> tuple[str, str, Answer] | None:
    """`x > 3` and `3 < x` as (">", "x", 3)."""
    if not isinstance(relation, Relation) or len(relation.ops) != 1 or _interval(relation) is None:
        return None
    if _is_variable(relation.texts[0]):
        return relation.ops[0], relation.texts[0].strip(), relation.sides[1]
    return _FLIPPED[relation.ops[0]], relation.texts[1].strip(), relation.sides[0]


def _pieces(answer: Answer) -> tuple[Answer, ...] | None:
    """The members of a union; a list of inequalities is one."""
    if isinstance(answer, Union):
        return answer.members
    if isinstance(answer, Relation) and answer.ops == ("!=",) and _is_variable(answer.texts[0]):
        low, high = Scalar(Node("neg", (Node("inf"),))), Scalar(Node("inf"))
        return (Items("()", (low, answer.sides[1])), Items("()", (answer.sides[1], high)))
    if isinstance(answer, Items) and answer.kind == "list":
        pieces = [_interval(member) for member in answer.members if isinstance(member, Relation)]
        whole = tuple(piece for piece in pieces if piece is not None)
        return whole if len(whole) == len(answer.members) else None
    return (answer,) if isinstance(answer, Items) else None


def _interval(relation: Relation) -> Items | None:
    """The interval that `x > 3` or `1 <= x < 2` names."""
    ops = relation.ops
    if not set(ops) <= {"<", "<="} and not set(ops) <= {">", ">="}:
        return None
    sides, texts = relation.sides, relation.texts
    if ops[0][0] == ">":
        sides, texts, ops = sides[::-1], texts[::-1], tuple(_FLIPPED[op] for op in ops[::-1])
    low, high = Scalar(Node("neg", (Node("inf"),))), Scalar(Node("inf"))
    if len(ops) == 1 and _is_variable(texts[0]) and _is_constant(sides[1]):
        return Items("(" + ("]" if ops[0] == "<=" else ")"), (low, sides[1]))
    if len(ops) == 1 and _is_variable(texts[1]) and _is_constant(sides[0]):
        return Items(("[" if ops[0] == "<=" else "(") + ")", (sides[0], high))
    if len(ops) == 2 and _is_variable(texts[1]) and _is_constant(sides[0]) and _is_constant(sides[2]):
        return Items(("[" if ops[0] == "<=" else "(") + ("]" if ops[1] == "<=" else ")"), (sides[0], sides[2]))
    return None


def _solution(relation: Relation) -> tuple[str, str, Answer] | None:
    """The name, sign and value of `x = 5`, `5 = x` or `x >= 3`; None for a relation that is not solved."""
    op = relation.ops[0]
    for at, sign in ((0, op), (1, _FLIPPED.get(op, op))):
        value = relation.sides[1 - at]
        if _SOLVED_NAME.fullmatch(relation.texts[at]) and _is_constant(value):
            return squeeze(relation.texts[at]), sign, value
    return None


def _membership(relation: Relation) -> Answer:
    """The set in `x in S`; any other relation as it is."""
    if relation.ops != ("in",) or not _is_name(relation.texts[0]) or _is_constant(relation.sides[1]):
        return relation
    return relation.sides[1]


def _variable(relation: Relation) -> str:
    return next(text for text in relation.texts if _is_variable(text))


def _is_variable(text: str) -> bool:
    return bool(re.fullmatch(r"(?![ei]$)[A-Za-z](?:_\{?\w+\}?)?|\\(?:theta|alpha|beta|lambda|phi)\s*", text.strip()))


def _is_constant(answer: Answer) -> bool:
    return isinstance(answer, Scalar) and not symbols(answer.node)


def _is_name(text: str) -> bool:
    """Whether the left side of an = only names what the right side is: x, f(2), m+n, AB, Area, (x, y)."""
    return not re.search(r"[^A-Za-z '|+,()]", _NAME_PARTS.sub(" ", text))


def _names(answer: Answer) -> frozenset[str]:
    """The symbols that a left side defines or a gold uses; the x of f(x) is neither."""
    if not isinstance(answer, Scalar) or _CALL.fullmatch(answer.text.strip()):
        return frozenset()
    return symbols(answer.node)


def _difference(relation: Relation) -> Node | None:
    left, right = relation.sides[0], relation.sides[1]
    if not isinstance(left, Scalar) or not isinstance(right, Scalar):
        return None
    return Node("add", (left.node, Node("neg", (right.node,))))
