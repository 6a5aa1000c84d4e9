"""Numerical comparison of trees to many digits; runs only in a worker, which the parent kills if it takes too long."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from mpmath import mp  # type: ignore[import-untyped]

from agentrl_math.evaluation import MAX_SPAN, Sight, evaluate, real
from agentrl_math.exact import HUGE_BITS, InexactError, TooLargeError, UndefinedError, exact, huge
from agentrl_math.expr import Node, ParseError, symbols
from agentrl_math.judge import GoldUndefinedError, Quick, UndecidedError, close, infinity
from agentrl_math.limits import EXACT_BITS
from agentrl_math.parser import parse
from agentrl_math.points import points

BASE_DIGITS = 80


class Numeric:
    """Judge by exact rationals if possible, else by many digits, else at sample points."""

    def equal(self, gold: Node, given: Node, rounding: float | int | str) -> bool:
        """Compare exactly, or to as many digits as a proof needs."""
        a, b = infinity(gold), infinity(given)
        if a or b:
            return a == b
        if not symbols(gold) | symbols(given):
            return self._constants(gold, given, rounding)
        if gold == given:
            return True
        return _any_reading(_agree_at_points, gold, given)

    def _constants(self, gold: Node, given: Node, rounding: float | int | str) -> bool:
        wanted = _exactly(gold)
        if gold == given:
            return True
        try:
            if wanted is not None:
                return close(wanted, exact(given, EXACT_BITS), rounding)
        except UndefinedError:
            return False
        except (InexactError, TooLargeError):
            pass
        if rounding != "exact":
            return _any_reading(lambda x, y: _rounds(x, y, rounding), gold, given)
        return _any_reading(lambda x, y: _agree(x, y, {}), gold, given)

    def proportional(self, gold: Node, given: Node, positive: bool) -> bool:
        """Return whether given = c·gold at every sample point for one constant c, which may have to be positive."""
        return _any_reading(lambda x, y: _proportional(x, y, positive), gold, given)

    def order(self, a: Node, b: Node) -> int | None:
        """Compare rationals exactly, others by as many digits as needed."""
        try:
            return Quick().order(a, b)
        except UndecidedError:
            pass
        try:
            if self.equal(a, b, "exact"):
                return 0
            mp.dps = BASE_DIGITS
            gap = real(evaluate(Node("add", (a, Node("neg", (b,)))), {}, Sight()))
        except (UndefinedError, GoldUndefinedError):
            return None
        except TooLargeError:
            raise UndecidedError("too large to compare in size") from None
        return None if mp.im(gap) else int(mp.sign(gap))

    def _is_sized_if_read(self, text: str) -> bool:
        """Return False for a tower that our grammar parses, because sympy would try to compute it."""
        try:
            return self.settles(parse(text))
        except (ParseError, GoldUndefinedError):
            return True

    def settles(self, node: Node) -> bool:
        """Return whether an expression has values that can be computed."""
        names = symbols(node)
        if infinity(node) or _exactly(node) is not None:
            return True
        plain = _logarithms(node, node)[0][0]
        return sum(_is_sized(plain, point.values) for point in points(names) if point.strict) >= 3

    def settles_opaque(self, text: str) -> bool:
        """Return whether a formula outside the grammar has a value that can be computed."""
        from agentrl_math import second

        return second.settles(text)

    def opaque(self, gold: str, given: str) -> bool:
        """Return whether math-verify finds two formulas equal and a proof confirms it; False if sympy fails."""
        from agentrl_math import second

        if not (self._is_sized_if_read(gold) and self._is_sized_if_read(given)):
            raise UndecidedError("too large to evaluate")
        try:
            return second.equal(gold, given)
        except (TypeError, ValueError, AttributeError, NotImplementedError, ArithmeticError, LookupError):
            return False


def _exactly(gold: Node) -> Fraction | None:
    """Return a gold as a rational; None if it is irrational or too large; GoldUndefinedError if it has no value."""
    try:
        return exact(gold, EXACT_BITS)
    except UndefinedError:
        raise GoldUndefinedError from None
    except (InexactError, TooLargeError):
        return None


def _logarithms(gold: Node, given: Node) -> list[tuple[Node, Node]]:
    r"""Return both readings of a \log without a base, decimal and natural, for both sides alike."""
    if not (_has_log(gold) or _has_log(given)):
        return [(gold, given)]
    return [(_with_base(gold, True), _with_base(given, True)), (_with_base(gold, False), _with_base(given, False))]


def _any_reading(holds: Callable[[Node, Node], bool], gold: Node, given: Node) -> bool:
    try:
        return any(holds(x, y) for x, y in _logarithms(gold, given))
    except TooLargeError:
        raise UndecidedError("too large to evaluate") from None


def _has_log(node: Node) -> bool:
    return (node.op == "log" and len(node.args) == 1) or any(map(_has_log, node.args))


def _with_base(node: Node, decimal: bool) -> Node:
    args = tuple(_with_base(arg, decimal) for arg in node.args)
    if node.op == "log" and len(args) == 1:
        return Node("log", (*args, Node("num", value=Fraction(10)))) if decimal else Node("ln", args)
    return Node(node.op, args, node.value)


def _agree(gold: Node, given: Node, env: Mapping[str, Fraction]) -> bool:
    """Compare to as many digits as the sizes require, at two precisions."""
    mp.dps = BASE_DIGITS
    sight = Sight()
    a = _sized(gold, lambda: _gold_value(gold, env, sight))
    try:
        b = _sized(given, lambda: evaluate(given, env, sight))
    except UndefinedError:
        return False
    if a is None or b is None:
        return _towers(a, b)
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b
    if sight.span > MAX_SPAN:
        return _far_apart(a, b)
    span = int(sight.span)
    if abs(real(a) - real(b)) > mp.mpf(10) ** -50 * sight.scale:
        return False
    mp.dps = BASE_DIGITS + 3 * span
    sight = Sight()
    a, b = real(evaluate(gold, env, sight)), real(evaluate(given, env, sight))
    return bool(abs(a - b) <= mp.mpf(10) ** -(50 + 2 * span))


def _sized(node: Node, value: Callable[[], Any]) -> Any:
    """Return the value; None for a tower that is too large to evaluate."""
    try:
        return value()
    except TooLargeError:
        if huge(node):
            return None
        raise UndecidedError("too large to evaluate") from None


def _towers(a: Any, b: Any) -> bool:
    """Return False if only one side is a tower; raise UndecidedError for two towers."""
    known = a if b is None else b
    if known is not None and abs(real(known)) < mp.mpf(2) ** HUGE_BITS:
        return False
    raise UndecidedError("too large to compare")


def _far_apart(a: Any, b: Any) -> bool:
    """Return False if two huge numbers certainly differ; raise UndecidedError if their leading digits are equal."""
    a, b = real(a), real(b)
    if abs(a - b) > mp.mpf(10) ** -30 * max(abs(a), abs(b)):
        return False
    raise UndecidedError("too large to compare digit by digit")


def _gold_value(gold: Node, env: Mapping[str, Fraction], sight: Sight) -> Any:
    try:
        return evaluate(gold, env, sight)
    except UndefinedError:
        raise GoldUndefinedError from None


def _rounds(gold: Node, given: Node, rounding: float | int | str) -> bool:
    mp.dps = BASE_DIGITS
    a = real(_gold_value(gold, {}, Sight()))
    try:
        b = real(evaluate(given, {}, Sight()))
    except UndefinedError:
        return False
    if mp.im(a) or mp.im(b):
        return bool(abs(a - b) <= mp.mpf(10) ** -50)
    return close(_fraction(a), _fraction(b), rounding)


def _fraction(value: Any) -> Fraction:
    sign, mantissa, exponent, _ = mp.re(value)._mpf_
    return Fraction(int(-mantissa if sign else mantissa)) * Fraction(2) ** int(exponent)


def _agree_at_points(gold: Node, given: Node) -> bool:
    """Compare functions wherever both are real; if these are too few positive points, compare complex values too."""
    agreed, elsewhere = 0, []
    for point in points(symbols(gold) | symbols(given)):
        try:
            if not _is_real(gold, given, point.values):
                elsewhere += [point.values] if point.strict else []
                continue
            if not _agree(gold, given, point.values):
                return False
        except (UndefinedError, GoldUndefinedError):
            elsewhere += [point.values] if point.strict else []
            continue
        except (UndecidedError, TooLargeError):
            if point.strict:
                raise
            continue
        agreed += point.positive
    return agreed >= 3 or _agree_among_complex(gold, given, elsewhere, agreed)


def _agree_among_complex(gold: Node, given: Node, samples: list[dict[str, Fraction]], agreed: int) -> bool:
    for sample in samples:
        try:
            if not _agree(gold, given, sample):
                return False
        except (UndefinedError, GoldUndefinedError):
            continue
        agreed += 1
    if not agreed:
        raise GoldUndefinedError
    if agreed < 3:
        raise UndecidedError("no value at enough points")
    return True


def _proportional(gold: Node, given: Node, positive: bool) -> bool:
    names = symbols(gold) | symbols(given)
    ratios = []
    mp.dps = BASE_DIGITS
    for point in points(names):
        try:
            if not point.strict and not _is_real(gold, given, point.values):
                continue
            a, b = (real(evaluate(node, point.values, Sight())) for node in (gold, given))
        except UndefinedError:
            continue
        except TooLargeError:
            if point.strict:
                raise
            continue
        vanishing = [abs(value) < 1e-40 for value in (a, b)]
        if all(vanishing):
            continue
        if any(vanishing):
            return False
        ratios.append((a, b))
    if len(ratios) < 3 or not names:
        return False
    if positive and any(mp.re(b / a) < 0 for a, b in ratios):
        return False
    (a0, b0), rest = ratios[0], ratios[1:]
    return all(abs(a * b0 - b * a0) <= mp.mpf(10) ** -30 * abs(a * b0) for a, b in rest)


def _is_real(gold: Node, given: Node, env: Mapping[str, Fraction]) -> bool:
    """Return whether both values and all intermediate values are real at this point."""
    mp.dps = BASE_DIGITS
    for node in (gold, given):
        sight = Sight()
        value = evaluate(node, env, sight)
        if sight.left or abs(mp.im(real(value))) > mp.mpf(10) ** -50:
            return False
    return True


def _is_sized(node: Node, env: Mapping[str, Fraction]) -> bool:
    """Return whether an expression has a value at this point whose digits can be compared."""
    mp.dps, sight = BASE_DIGITS, Sight()
    try:
        evaluate(node, env, sight)
    except (UndefinedError, TooLargeError):
        return False
    return sight.span <= MAX_SPAN
