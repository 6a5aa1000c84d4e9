"""Sets of real numbers in normal form: sorted pieces that do not touch."""

from dataclasses import dataclass, replace
from functools import cmp_to_key

from agentrl_math.expr import Node
from agentrl_math.forms import Answer, Combined, Items, Relation, Scalar, Union
from agentrl_math.judge import Judge
from agentrl_math.relations import between, interval, is_constant, is_variable, membership, pieces, variables

_LOWEST, _HIGHEST = Node("neg", (Node("inf"),)), Node("inf")


@dataclass(frozen=True)
class Piece:
    """An interval with or without its ends; a point is an interval with equal, included ends."""

    low: Node
    high: Node
    has_low: bool
    has_high: bool


Region = list[Piece]


class NoRegionError(ValueError):
    """An answer is not a set of reals, or its ends cannot be ordered."""


@dataclass(frozen=True)
class Regions:
    """Comparison of sets of reals by the judge's order of numbers."""

    judge: Judge

    def same(self, gold: Answer, given: Answer) -> bool:
        """Return whether two answers are the same set of reals."""
        if len(variables(gold) | variables(given)) > 1:
            return False
        try:
            a, b = self.of(gold), self.of(given)
            return len(a) == len(b) and all(map(self._same_piece, a, b))
        except NoRegionError:
            return False

    def _same_piece(self, a: Piece, b: Piece) -> bool:
        if (a.has_low, a.has_high) != (b.has_low, b.has_high):
            return False
        return not self._order(a.low, b.low) and not self._order(a.high, b.high)

    def _order(self, a: Node, b: Node) -> int:
        order = self.judge.order(a, b)
        if order is None:
            raise NoRegionError("ends without an order")
        return order

    def of(self, answer: Answer) -> Region:
        """Return the normal form; NoRegionError if there is none."""
        answer = between(answer)
        if isinstance(answer, Combined):
            regions = [self.of(member) for member in answer.members]
            result = regions[0]
            for region in regions[1:]:
                result = self._meet(result, region if answer.op == "cap" else self._without(region))
            return result
        if isinstance(answer, Items) and answer.kind in ("set", "list") and all(_is_number(m) for m in answer.members):
            return self._merged([Piece(m.node, m.node, True, True) for m in answer.members if isinstance(m, Scalar)])
        if isinstance(answer, Items) and answer.kind[:1] in "([" and len(answer.members) == 2:
            return self._interval(answer)
        if isinstance(answer, Relation):
            return self.of(self._solved(answer))
        parts = pieces(answer)
        if parts is None or parts == (answer,):
            raise NoRegionError("not a set of reals")
        return self._merged([piece for part in parts for piece in self.of(part)])

    def _solved(self, relation: Relation) -> Answer:
        """Return the set described by an inequality, `x \\ne 2` or `x \\in S`."""
        if relation.ops == ("=",) and is_variable(relation.texts[0]) and is_constant(relation.sides[1]):
            return Items("set", (relation.sides[1],))
        parts = pieces(relation)
        found = interval(relation) or (Union(parts) if parts else membership(relation))
        if found is relation:
            raise NoRegionError("not a relation between one variable and numbers")
        return found

    def _interval(self, answer: Items) -> Region:
        low, high = answer.members
        if not (_is_number(low) and _is_number(high)) or not isinstance(low, Scalar) or not isinstance(high, Scalar):
            raise NoRegionError("not an interval of numbers")
        if self._order(low.node, high.node) >= 0:
            raise NoRegionError("an interval that ends before it begins")
        return [Piece(low.node, high.node, answer.kind[0] == "[", answer.kind[1] == "]")]

    def _merged(self, region: Region) -> Region:
        """Sort the pieces and merge those that overlap or touch."""
        merged: Region = []
        for piece in sorted(region, key=cmp_to_key(self._by_low)):
            if merged and self._reaches(merged[-1], piece):
                merged[-1] = self._joined(merged[-1], piece)
            else:
                merged.append(piece)
        return merged

    def _by_low(self, a: Piece, b: Piece) -> int:
        return self._order(a.low, b.low) or b.has_low - a.has_low

    def _reaches(self, a: Piece, b: Piece) -> bool:
        order = self._order(a.high, b.low)
        return order > 0 or (order == 0 and (a.has_high or b.has_low))

    def _joined(self, a: Piece, b: Piece) -> Piece:
        order = self._order(a.high, b.high)
        if order:
            return replace(a, high=b.high, has_high=b.has_high) if order < 0 else a
        return replace(a, has_high=a.has_high or b.has_high)

    def _meet(self, one: Region, other: Region) -> Region:
        found = [piece for a in one for b in other if (piece := self._overlap(a, b))]
        return self._merged(found)

    def _overlap(self, a: Piece, b: Piece) -> Piece | None:
        first, last = self._order(a.low, b.low), self._order(a.high, b.high)
        low, high = (a.low if first > 0 else b.low), (a.high if last < 0 else b.high)
        has_low = a.has_low if first > 0 else b.has_low and (first < 0 or a.has_low)
        has_high = a.has_high if last < 0 else b.has_high and (last > 0 or a.has_high)
        order = self._order(low, high)
        if order > 0 or (order == 0 and not (has_low and has_high)):
            return None
        return Piece(low, high, has_low, has_high)

    def _without(self, region: Region) -> Region:
        """Return the complement."""
        rest, low, has_low = [], _LOWEST, False
        for piece in region:
            order = self._order(low, piece.low)
            if order < 0 or (order == 0 and has_low and not piece.has_low):
                rest.append(Piece(low, piece.low, has_low, not piece.has_low and piece.low != _LOWEST))
            low, has_low = piece.high, not piece.has_high and piece.high != _HIGHEST
        if low != _HIGHEST:
            rest.append(Piece(low, _HIGHEST, has_low, False))
        return rest


def _is_number(answer: Answer) -> bool:
    return isinstance(answer, Scalar) and not answer.unit
