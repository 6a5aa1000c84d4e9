"""Comparison of relations: equations, inequalities, `x = 5` and 5, `1/3 ≈ 0.333`."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

from agentrl_math import relations
from agentrl_math.expr import Node
from agentrl_math.forms import Answer, Combined, Matrix, Relation, Scalar, Union
from agentrl_math.judge import GoldUndefinedError, Judge
from agentrl_math.latex import squeeze, words
from agentrl_math.measures import differ
from agentrl_math.policy import Policy
from agentrl_math.quantities import EXACTLY, places


class Comparer(Protocol):
    """Comparison of the parts of a relation."""

    @property
    def judge(self) -> Judge:
        """The judge of numbers."""

    @property
    def policy(self) -> Policy:
        """The policy of the comparison."""

    def same(self, gold: Answer, given: Answer) -> bool:
        """Return whether `given` is the answer `gold`."""

    def directed(self, is_gold: bool, one: Answer, other: Answer) -> bool:
        """Call `same` with the gold first; `is_gold` says whether `one` is the gold."""

    def alike(self, one: Answer, other: Answer) -> bool:
        """Return whether two parts of one answer are the same; neither is the gold."""

    def ordered(self, gold: Sequence[Answer], given: Sequence[Answer]) -> bool:
        """Return whether all members are the same in this order."""


def related(by: Comparer, gold: Answer, given: Answer) -> bool:
    """Return whether two answers, at least one of them a relation, are the same."""
    if isinstance(gold, Relation) and isinstance(given, Relation):
        a, b = relations.membership(gold), relations.membership(given)
        return _relations(by, gold, given) if a is gold and b is given else by.same(a, b)
    relation, other = (gold, given) if isinstance(gold, Relation) else (given, gold)
    assert isinstance(relation, Relation)
    as_set = relations.interval(relation)
    if as_set is not None:
        return not isinstance(other, Scalar | Matrix) and by.directed(relation is gold, as_set, other)
    pieces = relations.pieces(relation) if isinstance(other, Union | Combined) else None
    if pieces:
        return by.directed(relation is gold, Union(pieces), other)
    member = relations.membership(relation)
    if member is not relation:
        return by.directed(relation is gold, member, other)
    return _values(by, relation, other, relation is gold)


def _values(by: Comparer, relation: Relation, other: Answer, is_gold: bool) -> bool:
    """Compare the value of `x = 5`, `m+n = 2+3 = 5` or `x = 1/3 ≈ 0.333`, which all sides must have, with an answer."""
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
        return all(by.directed(is_gold, side, other) for side in segments[0])
    return _rounded(by, segments, other, is_gold)


def _rounded(by: Comparer, segments: list[list[Answer]], other: Answer, is_gold: bool) -> bool:
    """Compare `1/3 ≈ 0.333 ≈ 0.33`: all parts must round the most precise one, and one must be the other answer."""
    finest = max(segments, key=lambda segment: max(map(places, segment)))
    coarser = [segment for segment in segments if segment is not finest]
    if not all(by.alike(finest[0], side) for side in finest[1:]):
        return False
    if not all(_rounds(by, finest[0], side) for segment in coarser for side in segment):
        return False
    return any(all(by.directed(is_gold, side, other) for side in segment) for segment in segments)


def _rounds(by: Comparer, precise: Answer, part: Answer) -> bool:
    """Return whether `part` is `precise` rounded to the decimals of `part`."""
    decimals = places(part)
    if not isinstance(precise, Scalar) or not isinstance(part, Scalar) or decimals == EXACTLY:
        return False
    if differ(precise.unit, part.unit, by.policy.units):
        return False
    scale = Node("num", value=Fraction(10) ** min(decimals, 0))
    a, b = (Node("mul", (side.node, scale)) for side in (precise, part))
    try:
        return by.judge.equal(a, b, max(decimals, 0))
    except GoldUndefinedError:
        return False


def _relations(by: Comparer, gold: Relation, given: Relation) -> bool:
    a, b = relations.interval(gold), relations.interval(given)
    if a is not None and b is not None:
        return words(relations.variable(gold)) == words(relations.variable(given)) and by.same(a, b)
    if len(gold.ops) > 1 and gold.ops == given.ops:
        return by.ordered(gold.sides, given.sides)
    if len(gold.ops) > 1 or len(given.ops) > 1:
        return _chain(by, gold, given)
    if (
        gold.ops[0] in ("=", "in")
        and given.ops[0] in ("=", "in")
        and squeeze(gold.texts[0]) == squeeze(given.texts[0])
        and (gold.ops == given.ops or not relations.is_constant(given.sides[1]))
    ):
        return by.same(gold.sides[1], given.sides[1])
    if gold.ops == given.ops == ("!=",) and gold.texts[0] == given.texts[0]:
        return by.same(gold.sides[1], given.sides[1])
    if solved := relations.solution(gold):
        other = relations.solution(given)
        return other is not None and other[:2] == solved[:2] and by.same(solved[2], other[2])
    return _moved(by, gold, given)


def _chain(by: Comparer, gold: Relation, given: Relation) -> bool:
    """Compare `y = 2x + x = 3x` with `y = 3x`: every step must hold."""
    if gold.ops != ("=",) or not set(given.ops) <= {"=", "~"} or squeeze(gold.texts[0]) != squeeze(given.texts[0]):
        return False
    if "~" in given.ops:
        return _values(by, given, gold.sides[1], is_gold=False)
    return all(by.same(gold.sides[1], side) for side in given.sides[1:])


def _moved(by: Comparer, gold: Relation, given: Relation) -> bool:
    """Return whether the differences of the sides are proportional: 2x + 4y = 3 and y = -x/2 + 3/4."""
    op = given.ops[0]
    sign = 1 if gold.ops[0] == op else -1
    if gold.ops[0] not in (op, relations.FLIPPED.get(op)) or op not in ("=", "!=", "<", ">", "<=", ">="):
        return False
    a, b = relations.difference(gold), relations.difference(given)
    if a is None or b is None:
        return False
    b = b if sign == 1 else Node("neg", (b,))
    return by.judge.proportional(a, b, positive=op not in ("=", "!="))
