"""High-precision arithmetic on trees; runs only inside a worker, which the parent kills when it takes too long."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from mpmath import mp  # type: ignore[import-untyped]

from agentrl_math.compare import GoldUndefinedError, UndecidedError, close, infinity
from agentrl_math.exact import HUGE_BITS, InexactError, TooLargeError, UndefinedError, exact, huge
from agentrl_math.expr import Node, symbols
from agentrl_math.limits import EXACT_BITS
from agentrl_math.points import points

MAX_SPAN = 2_000
"""Numbers of up to 10^±2000 are compared; beyond, only unequal ones can be told apart."""
BASE_DIGITS = 80
MAX_TURN_BITS = 100_000
"""The size of an angle beyond which its sine is not looked for."""


@dataclass
class Sight:
    """What one evaluation met: the largest |log10| of any part, the size of the largest part, a step off the reals."""

    span: float = 1.0
    left: bool = False
    scale: Any = field(default_factory=lambda: mp.mpf(1))

    def see(self, value: Any) -> Any:
        """Take note of a value, and return it."""
        size = abs(value)
        if size and mp.isfinite(size):
            self.span = max(self.span, abs(float(mp.mag(size)) * 0.30103))
            self.scale = max(self.scale, size)
        return value


class Numeric:
    """Decides by exact rationals where it can, else by many digits, else at sample points."""

    def equal(self, gold: Node, given: Node, rounding: float | int | str) -> bool:
        """Exactly, or to as many digits as prove it."""
        a, b = infinity(gold), infinity(given)
        if a or b:
            return a == b
        if not symbols(gold) | symbols(given):
            return self._constants(gold, given, rounding)
        if gold == given:
            return True
        return _any_reading(_agree_at_points, gold, given)

    def _constants(self, gold: Node, given: Node, rounding: float | int | str) -> bool:
        if gold == given:
            _defined(gold)
            return True
        try:
            return close(exact(gold, EXACT_BITS), _given(given), rounding)
        except _GivenUndefinedError:
            return False
        except UndefinedError:
            raise GoldUndefinedError from None
        except (InexactError, TooLargeError):
            pass
        if rounding != "exact":
            return _any_reading(lambda x, y: _rounds(x, y, rounding), gold, given)
        return _any_reading(lambda x, y: _agree(x, y, {}), gold, given)

    def proportional(self, gold: Node, given: Node, positive: bool) -> bool:
        """Whether given = c·gold for one constant c, positive if asked, at every sample point."""
        return _any_reading(lambda x, y: _proportional(x, y, positive), gold, given)

    def settles(self, node: Node) -> bool:
        """Whether an expression has values that can be computed, so that what cannot be told is not its doing."""
        names = symbols(node)
        if infinity(node):
            return True
        try:
            exact(node, EXACT_BITS)
        except UndefinedError:
            raise GoldUndefinedError from None
        except (InexactError, TooLargeError):
            pass
        else:
            return True
        plain = _logarithms(node, node)[0][0]
        return sum(_is_sized(plain, point.values) for point in points(names) if point.strict) >= 3

    def settles_opaque(self, text: str) -> bool:
        """The same for a formula outside the grammar."""
        from agentrl_math import second

        return second.settles(text)

    def opaque(self, gold: str, given: str) -> bool:
        """What math-verify calls equal and a proof confirms; a formula that sympy stumbles over is not shown equal."""
        from agentrl_math import second

        try:
            return second.equal(gold, given)
        except (TypeError, ValueError, AttributeError, NotImplementedError, ArithmeticError, LookupError):
            return False


class _GivenUndefinedError(Exception):
    pass


def _given(node: Node) -> Fraction:
    try:
        return exact(node, EXACT_BITS)
    except UndefinedError:
        raise _GivenUndefinedError from None


def _defined(gold: Node) -> None:
    try:
        exact(gold, EXACT_BITS)
    except UndefinedError:
        raise GoldUndefinedError from None
    except (InexactError, TooLargeError):
        pass


def _logarithms(gold: Node, given: Node) -> list[tuple[Node, Node]]:
    r"""\log without a base is decimal or natural: both sides are read alike, either way."""
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
    """Equality to as many digits as the sizes involved call for, seen at two precisions."""
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
    if abs(_real(a) - _real(b)) > mp.mpf(10) ** -50 * sight.scale:
        return False
    mp.dps = BASE_DIGITS + 3 * span
    sight = Sight()
    a, b = _real(evaluate(gold, env, sight)), _real(evaluate(given, env, sight))
    return bool(abs(a - b) <= mp.mpf(10) ** -(50 + 2 * span))


def _sized(node: Node, value: Callable[[], Any]) -> Any:
    """The value; None for a tower beyond evaluation."""
    try:
        return value()
    except TooLargeError:
        if huge(node):
            return None
        raise UndecidedError("too large to evaluate") from None


def _towers(a: Any, b: Any) -> bool:
    """False when one side is a tower and the other is not; two towers cannot be compared."""
    known = a if b is None else b
    if known is not None and abs(_real(known)) < mp.mpf(2) ** HUGE_BITS:
        return False
    raise UndecidedError("too large to compare")


def _far_apart(a: Any, b: Any) -> bool:
    """False when beyond doubt unequal; equal leading digits of huge numbers prove nothing."""
    a, b = _real(a), _real(b)
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
    a = _real(_gold_value(gold, {}, Sight()))
    try:
        b = _real(evaluate(given, {}, Sight()))
    except UndefinedError:
        return False
    if mp.im(a) or mp.im(b):
        return bool(abs(a - b) <= mp.mpf(10) ** -50)
    return close(_fraction(a), _fraction(b), rounding)


def _fraction(value: Any) -> Fraction:
    sign, mantissa, exponent, _ = mp.re(value)._mpf_
    return Fraction(int(-mantissa if sign else mantissa)) * Fraction(2) ** int(exponent)


def _agree_at_points(gold: Node, given: Node) -> bool:
    """Equality of functions wherever both are real; where that is at too few positive points, among complex numbers."""
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


def _agree_among_complex(gold: Node, given: Node, places: list[dict[str, Fraction]], agreed: int) -> bool:
    for place in places:
        try:
            if not _agree(gold, given, place):
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
            a, b = (_real(evaluate(node, point.values, Sight())) for node in (gold, given))
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
    """Whether both are real here, and every step on the way to them."""
    mp.dps = BASE_DIGITS
    for node in (gold, given):
        sight = Sight()
        value = evaluate(node, env, sight)
        if sight.left or abs(mp.im(_real(value))) > mp.mpf(10) ** -50:
            return False
    return True


def _is_sized(node: Node, env: Mapping[str, Fraction]) -> bool:
    """Whether an expression has a value here whose digits can be compared."""
    mp.dps, sight = BASE_DIGITS, Sight()
    try:
        evaluate(node, env, sight)
    except (UndefinedError, TooLargeError):
        return False
    return sight.span <= MAX_SPAN


def evaluate(node: Node, env: Mapping[str, Fraction], sight: Sight) -> Any:
    """A Fraction where the value is rational and small, else an mpmath number; UndefinedError where there is none."""
    if node.op == "num":
        value: Any = Fraction(node.value)
    elif node.op == "sym":
        value = env[str(node.value)]
    elif node.op == "const":
        value = {"pi": +mp.pi, "e": +mp.e, "i": mp.mpc(0, 1)}[str(node.value)]
    elif node.op == "inf":
        raise UndefinedError("infinity inside an expression")
    else:
        args = [evaluate(arg, env, sight) for arg in node.args]
        _avoid_pole(node, args, env, sight)
        value = _rounded(node, args[0], env, sight) if node.op in ("floor", "ceil") else _apply(node, args)
        if node.op == "tanh":
            sight.see(_exp(2 * abs(_real(args[0]))))  # how far it is from 1
        if not isinstance(value, Fraction) and mp.im(value) and not any(mp.im(_real(arg)) for arg in args):
            sight.left = True
    if isinstance(value, Fraction):
        value = _seen_fraction(value, sight)
    else:
        if not mp.isfinite(value):
            raise UndefinedError(node.op)
        sight.see(value)
    return value


def _seen_fraction(value: Fraction, sight: Sight) -> Any:
    """A literal of 120 digits asks for more than 120 digits."""
    bits = max(value.numerator.bit_length(), value.denominator.bit_length())
    sight.span = max(sight.span, bits * 0.30103)
    if bits > 20_000:
        return sight.see(_real(value))
    sight.scale = max(sight.scale, abs(_real(value)))
    return value


def _avoid_pole(node: Node, args: list[Any], env: Mapping[str, Fraction], sight: Sight) -> None:
    r"""UndefinedError where a divisor or the argument of a logarithm is zero, which digits alone never show."""
    if node.op in _POLES:
        part = Node(_POLES[node.op], node.args)
        value = _apply(part, args)
    elif node.op in ("div", "ln", "log") or (node.op == "pow" and mp.re(_real(args[1])) < 0):
        at = 1 if node.op == "div" else 0
        part, value = node.args[at], args[at]
    else:
        return
    if _vanishes(part, value, env, sight):
        raise UndefinedError(node.op)


def _vanishes(node: Node, value: Any, env: Mapping[str, Fraction], sight: Sight) -> bool:
    """Whether an expression that is zero for all its digits stays zero with many more."""
    if isinstance(value, Fraction):
        return value == 0
    if abs(value) > mp.mpf(10) ** -20 * sight.scale:
        return False
    span = _span(node, env)
    with mp.workdps(mp.dps + 3 * span):
        return bool(abs(_real(evaluate(node, env, Sight()))) < mp.mpf(10) ** -(2 * span + 20))


def _span(node: Node, env: Mapping[str, Fraction]) -> int:
    sight = Sight()
    evaluate(node, env, sight)
    if sight.span > MAX_SPAN:
        raise TooLargeError
    return int(sight.span)


def _rounded(node: Node, value: Any, env: Mapping[str, Fraction], sight: Sight) -> Any:
    """Floor or ceiling; next to a whole number, only more digits tell on which side."""
    value = _real(value)
    whole = mp.nint(mp.re(value))
    if mp.mag(whole) > MAX_SPAN or abs(mp.re(value) - whole) > mp.mpf(10) ** -20 * sight.scale:
        return _apply(node, [value])
    arg = node.args[0]
    gap = Node("add", (arg, Node("num", value=Fraction(-int(whole)))))
    if _vanishes(gap, mp.re(value) - whole, env, sight):
        return Fraction(int(whole))
    with mp.workdps(mp.dps + 3 * _span(gap, env)):
        return _apply(node, [_real(evaluate(arg, env, Sight()))])


def _apply(node: Node, args: list[Any]) -> Any:
    if all(isinstance(arg, Fraction) for arg in args) and node.op != "unknown":
        try:
            return exact(Node(node.op, tuple(Node("num", value=arg) for arg in args)), 20_000)
        except (InexactError, TooLargeError):
            pass
    try:
        return _FUNCTIONS[node.op](*map(_real, args)) if node.op != "unknown" else _unknown(str(node.value), *args)
    except (TooLargeError, UndefinedError):
        raise
    except (ZeroDivisionError, ValueError, OverflowError, KeyError) as problem:
        raise UndefinedError(node.op) from problem


def _real(value: Any) -> Any:
    return mp.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def _unknown(name: str, arg: Any) -> Any:
    """Some smooth function: f(x) equals f(y) only where x equals y."""
    seed = 2 + ord(name) / mp.mpf(64)
    return mp.exp(mp.sin(seed * _real(arg))) + seed * _real(arg)


def _power(a: Any, b: Any) -> Any:
    if a == 0:
        if mp.re(b) <= 0:
            raise UndefinedError("a power of zero")
        return mp.mpf(0)
    if abs(b) * abs(mp.log(abs(a)) or 1) > mp.mpf(10) ** 15:
        raise TooLargeError
    return mp.power(a, b)


def _exp(a: Any) -> Any:
    if abs(a) > mp.mpf(10) ** 15:
        raise TooLargeError
    return mp.exp(a)


def _bounded(function: Callable[[Any], Any], bits: int) -> Callable[[Any], Any]:
    """The function where its argument has no more bits before the point."""

    def at(a: Any) -> Any:
        if a and mp.mag(a) > bits:
            raise TooLargeError
        return function(a)

    return at


def _root(a: Any, n: Any) -> Any:
    if mp.im(a) == 0 and mp.re(a) < 0 and n == int(mp.re(n)) and int(mp.re(n)) % 2:
        return -mp.root(-mp.re(a), int(mp.re(n)))
    return _power(a, 1 / n)


def _gamma(a: Any) -> Any:
    if abs(a) > mp.mpf(10) ** 12:
        raise TooLargeError
    return mp.gamma(a + 1)


def _factorial2(a: Any) -> Any:
    if abs(a) > mp.mpf(10) ** 12:
        raise TooLargeError
    return mp.fac2(a)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda *args: mp.fsum(args),
    "neg": lambda a: -a,
    "mul": lambda *args: mp.fprod(args),
    "div": lambda a, b: a / b,
    "pow": _power,
    "root": _root,
    "abs": abs,
    "floor": lambda a: mp.floor(mp.re(a)),
    "ceil": lambda a: mp.ceil(mp.re(a)),
    "factorial": _gamma,
    "factorial2": _factorial2,
    "binom": lambda a, b: mp.binomial(a, b),
    **{name: _bounded(getattr(mp, name), MAX_TURN_BITS) for name in ("sin", "cos", "tan", "cot", "sec", "csc")},
    "arcsin": mp.asin, "arccos": mp.acos, "arctan": mp.atan, "arccot": mp.acot, "arcsec": mp.asec, "arccsc": mp.acsc,
    **{name: _bounded(getattr(mp, name), 50) for name in ("sinh", "cosh", "tanh")}, "exp": _exp, "ln": mp.log,
    "log": lambda a, base: mp.log(a) / mp.log(base),
}  # fmt: skip
_POLES = {"tan": "cos", "sec": "cos", "cot": "sin", "csc": "sin"}
