"""Comparison of two answers: structure first, then numbers by a `Judge`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

from agentrl_math import relations
from agentrl_math.expr import Node, symbols
from agentrl_math.forms import Answer, Based, Combined, Items, Matrix, Opaque, Relation, Scalar, Union, Words
from agentrl_math.judge import GoldUndefinedError, Judge, is_beyond, small
from agentrl_math.latex import squeeze, words
from agentrl_math.policy import Policy
from agentrl_math.prose import is_formula, lost_signs
from agentrl_math.quantities import same_quantity
from agentrl_math.regions import Regions
from agentrl_math.related import related

MAX_REPEATED = 40
"""A set may have this many more than twice the members of the gold: removing repetitions takes quadratic time."""
_LISTS = ("list", "set", "and")


@dataclass(frozen=True)
class Comparison:
    """Comparison of answers under one policy with one judge."""

    judge: Judge
    policy: Policy

    def same(self, gold: Answer, given: Answer) -> bool:
        """Return whether `given` is the answer `gold`."""
        gold, given = relations.between(gold), relations.between(given)
        if isinstance(gold, Relation) or isinstance(given, Relation):
            return related(self, gold, given)
        if isinstance(gold, Words | Opaque) or isinstance(given, Words | Opaque):
            return self._texts(gold, given)
        if isinstance(gold, Union | Combined) or isinstance(given, Union | Combined):
            return self._unions(gold, given)
        if isinstance(gold, Matrix) or isinstance(given, Matrix):
            return self._matrices(gold, given)
        if isinstance(gold, Items) or isinstance(given, Items):
            return self._items(gold, given)
        if isinstance(gold, Scalar) and isinstance(given, Scalar):
            return same_quantity(gold, given, self.judge, self.policy)
        return isinstance(gold, Based) and gold == given

    def _matrices(self, gold: Answer, given: Answer) -> bool:
        """Compare cell by cell; a tuple counts as a column or a row, and a sum of i, j and k as a tuple."""
        if isinstance(gold, Matrix) and isinstance(given, Matrix):
            return [len(row) for row in gold.rows] == [len(row) for row in given.rows] and all(
                self.ordered(a, b) for a, b in zip(gold.rows, given.rows, strict=True)
            )
        kinds = ("()", "[]") if isinstance(gold, Matrix) else ("()",)
        a, b = _as_vector(gold, kinds), _as_vector(given, kinds)
        return a is not None and b is not None and self.same(a, b)

    def _texts(self, gold: Answer, given: Answer) -> bool:
        a, b = _text(gold), _text(given)
        if a is None or b is None:
            return False
        if isinstance(gold, Words) or isinstance(given, Words):
            return _same_words(a, b)
        return squeeze(a) == squeeze(b) or (is_beyond(a + b) and self.judge.opaque(a, b))

    def _unions(self, gold: Answer, given: Answer) -> bool:
        """Compare piece by piece, else as sets of reals: the union of [1,2] and [2,3] is [1,3]."""
        if (
            isinstance(gold, Combined)
            and isinstance(given, Combined)
            and gold.op == given.op
            and self.ordered(gold.members, given.members)
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
        is_repeated = isinstance(gold, Items) and gold.kind == "list"  # by the gold; an answer may name two forms
        a, b = _as_items(gold, "set"), _as_items(given, "list" if is_repeated else "set")
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
            return (self.ordered if ordered else self._unordered)(a.members, b.members)
        if {a.kind, b.kind} == {"list", "()"}:
            return self._assigned(a, b)
        if a.kind != b.kind and {a.kind, b.kind} != {"list", "[]"}:
            return False
        if a.kind != b.kind and len(a.members) < 3:
            return False
        free = self.policy.order == "free" and a.kind in ("()", "[]")
        return (self._unordered if free else self.ordered)(a.members, b.members)

    def _as_sum(self, gold: Answer, given: Answer) -> bool | None:
        """Return whether (1, -2) is i - 2j; None if neither is a sum of unit vectors."""
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
        return self.directed(items is gold, vector, total)

    def _as_ratio(self, gold: Answer, given: Answer) -> bool | None:
        """Return whether 1:2 is the fraction 1/2; None if neither is a ratio of two numbers."""
        ratio, other = (gold, given) if isinstance(gold, Items) else (given, gold)
        is_fraction = isinstance(other, Scalar) and other.node.op == "div" and not other.unit
        if not isinstance(ratio, Items) or ratio.kind != ":" or not is_fraction:
            return None
        if len(ratio.members) != 2 or not all(map(_is_term, ratio.members)) or _is_clock(ratio):
            return None
        one, two = (m.node for m in ratio.members if isinstance(m, Scalar))
        return not _is_zero(two) and self.directed(ratio is gold, Scalar(Node("div", (one, two))), other)

    def _ratios(self, gold: Items, given: Items) -> bool:
        """Compare part by part, else in proportion; times such as 10:20 only part by part."""
        if self.ordered(gold.members, given.members):
            return True
        if len(gold.members) != len(given.members) or _is_clock(gold) or _is_clock(given):
            return False
        pairs = [(a.node, b.node) for a, b in zip(gold.members, given.members, strict=True)
                 if _is_term(a) and _is_term(b)]  # fmt: skip
        if len(pairs) < len(gold.members) or any(map(_is_zero, pairs[0])):
            return False
        (a0, b0), rest = pairs[0], pairs[1:]
        try:
            return all(
                self.judge.equal(Node("mul", (a, b0)), Node("mul", (b, a0)), self.policy.rounding) for a, b in rest
            )
        except GoldUndefinedError:  # raised for a product that contains a part of the answer
            return False

    def _distinct(self, members: Sequence[Answer]) -> list[Answer]:
        found: list[Answer] = []
        for member in members:
            if not any(self.alike(other, member) for other in found):
                found.append(member)
        return found

    def alike(self, one: Answer, other: Answer) -> bool:
        """Return whether two parts of one answer are the same; neither is the gold."""
        try:
            return self.same(one, other)
        except GoldUndefinedError:
            return False

    def _assigned(self, gold: Items, given: Items) -> bool:
        """Compare `x = 1, y = 2` with the point (1, 2)."""
        bare, point = (gold, given) if gold.kind == "list" else (given, gold)
        values = relations.by_name(bare)
        if values is None:
            return False
        return self.ordered(values, point.members) if bare is gold else self.ordered(point.members, values)

    def ordered(self, gold: Sequence[Answer], given: Sequence[Answer]) -> bool:
        """Return whether all members are the same in this order."""
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

    def directed(self, is_gold: bool, one: Answer, other: Answer) -> bool:
        """Call `same` with the gold first; `is_gold` says whether `one` is the gold."""
        return self.same(one, other) if is_gold else self.same(other, one)


def _text(answer: Answer) -> str | None:
    if isinstance(answer, Words | Opaque | Scalar):
        return answer.text
    return None


def _same_words(gold: str, given: str) -> bool:
    """Return whether two texts have the same words and no other signs; the case of symbols counts."""
    a, b = words(gold), words(given)
    if a != b or not a or lost_signs(gold) or lost_signs(given):
        return False
    return len(a) == 1 or not (is_formula(gold) and is_formula(given)) or squeeze(gold) == squeeze(given)


def _as_items(answer: Answer, kind: str) -> Items | None:
    """Return several answers as they are, and a single one as a list or set; None for other answers."""
    if isinstance(answer, Items):
        return answer
    return Items(kind, (answer,)) if isinstance(answer, Scalar | Based) else None


def _as_vector(answer: Answer, kinds: tuple[str, ...]) -> Answer | None:
    """Return a one-row or one-column matrix or a tuple with these brackets as a tuple; keep sums of unit vectors."""
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
    """Return the pieces of a union with its finite sets merged into one."""
    sets = [piece for piece in pieces if isinstance(piece, Items) and piece.kind == "set"]
    if len(sets) < 2:
        return list(pieces)
    members = tuple(member for piece in sets for member in piece.members)
    rest = [piece for piece in pieces if not (isinstance(piece, Items) and piece.kind == "set")]
    return [*rest, Items("set", members)]


def _is_term(answer: Answer) -> TypeGuard[Scalar]:
    """Return whether this is a number without a unit or a minus sign."""
    return isinstance(answer, Scalar) and not answer.unit and answer.node.op != "neg"


def _is_clock(answer: Items) -> bool:
    """Return whether a ratio looks like a time: 10:20, 05:00."""
    texts = [member.text.strip() for member in answer.members if isinstance(member, Scalar)]
    return all(re.fullmatch("[0-5][0-9]", text) for text in texts[1:])


def _is_zero(node: Node) -> bool:
    """Return whether this is known to be 0."""
    return small(node) == 0
