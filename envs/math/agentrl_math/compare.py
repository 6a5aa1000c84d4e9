"""Whether two answers are the same answer: structure first, then the numbers through a `Judge`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeGuard

from agentrl_math import relations
from agentrl_math.answer import Answer, Based, Combined, Items, Matrix, Opaque, Relation, Scalar, Union, Words
from agentrl_math.expr import Node, ParseError, parse, symbols
from agentrl_math.judge import GoldUndefinedError, Judge, is_beyond, small
from agentrl_math.latex import squeeze, words
from agentrl_math.measures import differ
from agentrl_math.numerals import rounds
from agentrl_math.policy import Policy
from agentrl_math.prose import is_formula, lost_signs
from agentrl_math.regions import Regions
from agentrl_math.units import with_letters

HUNDRED = Node("num", value=Fraction(100))
EXACTLY = 1_000_000
"""The decimals of what is no decimal."""
MAX_REPEATED = 40
"""How many more than twice the members of the gold a set may name: finding repetitions takes a square of them."""
_DECIMAL = re.compile(r"-?\d{0,400}(?:\.(\d{0,400}))?(?:\s*\*\s*10\s*\^\s*\{?\s*(-?\d{1,3})\s*\}?)?(?<=[\d.}])")
_LISTS = ("list", "set", "and")


@dataclass(frozen=True)
class Comparison:
    """Compares under one policy with one judge."""

    judge: Judge
    policy: Policy

    def same(self, gold: Answer, given: Answer) -> bool:
        """Whether `given` is the answer `gold`."""
        gold, given = relations.between(gold), relations.between(given)
        if isinstance(gold, Relation) or isinstance(given, Relation):
            return self._related(gold, given)
        if isinstance(gold, Words | Opaque) or isinstance(given, Words | Opaque):
            return self._texts(gold, given)
        if isinstance(gold, Union | Combined) or isinstance(given, Union | Combined):
            return self._unions(gold, given)
        if isinstance(gold, Matrix) or isinstance(given, Matrix):
            return self._matrices(gold, given)
        if isinstance(gold, Items) or isinstance(given, Items):
            return self._items(gold, given)
        if isinstance(gold, Scalar) and isinstance(given, Scalar):
            return self._scalars(gold, given)
        return isinstance(gold, Based) and gold == given

    def _scalars(self, gold: Scalar, given: Scalar) -> bool:
        if "percent" in (gold.unit, given.unit) and "" in (gold.unit, given.unit):
            return self._percent(gold, given)
        gold, given = _with_letters(gold, given), _with_letters(given, gold)
        if differ(gold.unit, given.unit, self.policy.units) or _in_other_order(gold.text, given.text):
            return False
        return self._equal(gold.node, given.node) or _is_rounded(gold, given)

    def _matrices(self, gold: Answer, given: Answer) -> bool:
        """Cell by cell; a tuple is a column or a row, a sum of i, j and k a tuple."""
        if isinstance(gold, Matrix) and isinstance(given, Matrix):
            return [len(row) for row in gold.rows] == [len(row) for row in given.rows] and all(
                self._ordered(a, b) for a, b in zip(gold.rows, given.rows, strict=True)
            )
        kinds = ("()", "[]") if isinstance(gold, Matrix) else ("()",)
        a, b = _as_vector(gold, kinds), _as_vector(given, kinds)
        return a is not None and b is not None and self.same(a, b)

    def _percent(self, gold: Scalar, given: Scalar) -> bool:
        if self.policy.percent == "required":
            return False
        if self._equal(_value(gold), _value(given)):
            return True
        if _is_rounded(gold, given):
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
        """Piece by piece, else as sets of reals: [1,2] and [2,3] together are [1,3]."""
        if (
            isinstance(gold, Combined)
            and isinstance(given, Combined)
            and gold.op == given.op
            and self._ordered(gold.members, given.members)
        ):
            return True
        a, b = relations.pieces(gold), relations.pieces(given)
        if a is not None and b is not None and self._unordered(_gathered(a), _gathered(b)):
            return True
        return Regions(self.judge).same(gold, given)

    def _items(self, gold: Answer, given: Answer) -> bool:
        if isinstance(gold, Scalar) or isinstance(given, Scalar):
            vector = self._as_sum(gold, given) or self._as_ratio(gold, given)
            if vector is not None:
                return vector
        a, b = _as_items(gold), _as_items(given)
        if a is None or b is None:
            return False
        if a.kind == b.kind == ":":
            return self._ratios(a, b)
        if a.kind in _LISTS and b.kind in _LISTS:
            is_strict = self.policy.order == "strict" and a.kind == b.kind == "list"
            ordered = is_strict or relations.named(a) != relations.named(b)
            if "set" in (a.kind, b.kind) and (a.kind == b.kind or len(a.members) != len(b.members)):
                if len(b.members) > 2 * len(a.members) + MAX_REPEATED:
                    return False
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

    def _as_sum(self, gold: Answer, given: Answer) -> bool | None:
        """Whether (1, -2) is i - 2j; None where neither is a sum of unit vectors."""
        items, total = (gold, given) if isinstance(gold, Items) else (given, gold)
        if not isinstance(items, Items) or not isinstance(total, Scalar) or items.kind != "()":
            return None
        names = symbols(total.node)
        if not names & {"j", "k"} or len(items.members) not in (2, 3) or ("k" in names and len(items.members) == 2):
            return None
        terms = [
            Node("mul", (m.node, axis)) for m, axis in zip(items.members, _AXES, strict=False) if isinstance(m, Scalar)
        ]
        if len(terms) < len(items.members):
            return None
        vector = Scalar(Node("add", tuple(terms)))
        return self._directed(items is gold, vector, total)

    def _as_ratio(self, gold: Answer, given: Answer) -> bool | None:
        """Whether 1:2 is the fraction 1/2; None where neither is a ratio of two numbers."""
        ratio, other = (gold, given) if isinstance(gold, Items) else (given, gold)
        is_fraction = isinstance(other, Scalar) and other.node.op == "div" and not other.unit
        if not isinstance(ratio, Items) or ratio.kind != ":" or not is_fraction:
            return None
        if len(ratio.members) != 2 or not all(map(_is_term, ratio.members)) or _is_clock(ratio):
            return None
        above, below = (m.node for m in ratio.members if isinstance(m, Scalar))
        return not _is_zero(below) and self._directed(ratio is gold, Scalar(Node("div", (above, below))), other)

    def _ratios(self, gold: Items, given: Items) -> bool:
        """Part by part, else in proportion; times such as 10:20 only part by part."""
        if self._ordered(gold.members, given.members):
            return True
        if len(gold.members) != len(given.members) or _is_clock(gold) or _is_clock(given):
            return False
        pairs = [(a.node, b.node) for a, b in zip(gold.members, given.members, strict=True)
                 if _is_term(a) and _is_term(b)]  # fmt: skip
        if len(pairs) < len(gold.members) or any(map(_is_zero, pairs[0])):
            return False
        (a0, b0), rest = pairs[0], pairs[1:]
        try:
            return all(self._equal(Node("mul", (a, b0)), Node("mul", (b, a0))) for a, b in rest)
        except GoldUndefinedError:  # of a product that holds a part of the answer
            return False

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
        values = relations.by_name(bare)
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
            a, b = relations.membership(gold), relations.membership(given)
            return self._relations(gold, given) if a is gold and b is given else self.same(a, b)
        relation, other = (gold, given) if isinstance(gold, Relation) else (given, gold)
        assert isinstance(relation, Relation)
        as_set = relations.interval(relation)
        if as_set is not None:
            return not isinstance(other, Scalar | Matrix) and self._directed(relation is gold, as_set, other)
        pieces = relations.pieces(relation) if isinstance(other, Union | Combined) else None
        if pieces:
            return self._directed(relation is gold, Union(pieces), other)
        member = relations.membership(relation)
        if member is not relation:
            return self._directed(relation is gold, member, other)
        return self._values(relation, other, relation is gold)

    def _directed(self, is_gold: bool, one: Answer, other: Answer) -> bool:
        return self.same(one, other) if is_gold else self.same(other, one)

    def _values(self, relation: Relation, other: Answer, is_gold: bool) -> bool:
        """`x = 5`, `m+n = 2+3 = 5` and `x = 1/3 ≈ 0.333` give a value; every side of an = must have it."""
        if not set(relation.ops) <= {"=", "~"}:
            return False
        named = relations.is_name(relation.texts[0]) and not relations.names(relation.sides[0]) & relations.names(other)
        if "+" in relation.texts[0] and (is_gold or len(relation.ops) == 1):
            named = False  # x + y = 2 is a line, whose answer is not 2; x + y = 2 + 3 = 5 is a sum
        start, end = (1 if named else 0), len(relation.sides)
        is_turned = relations.is_variable(relation.texts[-1]) and not relations.is_variable(relation.texts[0])
        if not named and is_turned and not relations.names(relation.sides[-1]) & relations.names(other):
            end -= 1
        segments: list[list[Answer]] = [[]]
        for op, side, text in list(zip(("=", *relation.ops), relation.sides, relation.texts, strict=True))[start:end]:
            if op == "~" and segments[-1]:
                segments.append([])
            if not (named and side is not relation.sides[end - 1] and relations.is_variable(text)):
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
        a, b = relations.interval(gold), relations.interval(given)
        if a is not None and b is not None:
            return words(relations.variable(gold)) == words(relations.variable(given)) and self.same(a, b)
        if len(gold.ops) > 1 and gold.ops == given.ops:
            return self._ordered(gold.sides, given.sides)
        if len(gold.ops) > 1 or len(given.ops) > 1:
            return self._chain(gold, given)
        if (
            gold.ops[0] in ("=", "in")
            and given.ops[0] in ("=", "in")
            and squeeze(gold.texts[0]) == squeeze(given.texts[0])
            and (gold.ops == given.ops or not relations.is_constant(given.sides[1]))
        ):
            return self.same(gold.sides[1], given.sides[1])
        if gold.ops == given.ops == ("!=",) and gold.texts[0] == given.texts[0]:
            return self.same(gold.sides[1], given.sides[1])
        if solved := relations.solution(gold):
            other = relations.solution(given)
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
        if gold.ops[0] not in (op, relations.FLIPPED.get(op)) or op not in ("=", "!=", "<", ">", "<=", ">="):
            return False
        a, b = relations.difference(gold), relations.difference(given)
        if a is None or b is None:
            return False
        b = b if sign == 1 else Node("neg", (b,))
        return self.judge.proportional(a, b, positive=op not in ("=", "!="))


def _value(scalar: Scalar) -> Node:
    return Node("div", (scalar.node, HUNDRED)) if scalar.unit == "percent" else scalar.node


def _exceeds_one(node: Node) -> bool:
    value = small(node)
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


def _as_vector(answer: Answer, kinds: tuple[str, ...]) -> Answer | None:
    """A matrix of one row or column, or a tuple with these brackets, as a tuple; a sum of unit vectors as it is."""
    if isinstance(answer, Matrix):
        cells = tuple(cell for row in answer.rows for cell in row)
        return Items("()", cells) if len(answer.rows) == 1 or len(cells) == len(answer.rows) else None
    if isinstance(answer, Items) and answer.kind in kinds:
        return Items("()", answer.members)
    if isinstance(answer, Items) and answer.kind == "list":
        values = relations.by_name(answer)
        return Items("()", values) if values else None
    return answer if isinstance(answer, Scalar) and symbols(answer.node) & {"j", "k"} else None


_AXES = (Node("const", value="i"), Node("sym", value="j"), Node("sym", value="k"))


def _gathered(pieces: Sequence[Answer]) -> list[Answer]:
    """The pieces of a union, its finite sets as one."""
    sets = [piece for piece in pieces if isinstance(piece, Items) and piece.kind == "set"]
    if len(sets) < 2:
        return list(pieces)
    members = tuple(member for piece in sets for member in piece.members)
    rest = [piece for piece in pieces if not (isinstance(piece, Items) and piece.kind == "set")]
    return [*rest, Items("set", members)]


def _is_term(answer: Answer) -> TypeGuard[Scalar]:
    """Whether this is a positive number, as far as its sign shows it."""
    return isinstance(answer, Scalar) and not answer.unit and answer.node.op != "neg"


def _is_clock(answer: Items) -> bool:
    """Whether a ratio looks like a time: 10:20, 05:00."""
    texts = [member.text.strip() for member in answer.members if isinstance(member, Scalar)]
    return all(re.fullmatch("[0-5][0-9]", text) for text in texts[1:])


def _is_zero(node: Node) -> bool:
    """Whether this is beyond doubt the number 0."""
    return small(node) == 0


def _with_letters(one: Scalar, other: Scalar) -> Scalar:
    """`5 V` with its letter as a unit, where the other number has one."""
    if one.unit or not other.unit or not symbols(one.node) or not (found := with_letters(one.text)):
        return one
    try:
        return Scalar(parse(found[0]), found[1], found[0])
    except ParseError:
        return one


def _is_rounded(gold: Scalar, given: Scalar) -> bool:
    """Whether one is a decimal of ten digits or more that rounds the fraction that the other is."""
    for decimal, other in ((gold, given), (given, gold)):
        value = small(other.node)
        if isinstance(value, Fraction):
            scale = Fraction(100 if decimal.unit == "percent" else 1, 100 if other.unit == "percent" else 1)
            if rounds(decimal.text, value * scale):
                return True
    return False
