"""High-precision arithmetic on trees; runs only inside a worker, which the parent kills when it takes too long."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from mpmath import mp  # type: ignore[import-untyped]

from agentrl_math.compare import GoldUndefinedError, UndecidedError, close, infinity
from agentrl_math.exact import HUGE_BITS, InexactError, TooLargeError, UndefinedError, exact, huge
from agentrl_math.expr import Node, symbols
from agentrl_math.limits import EXACT_BITS

MAX_SPAN = 2_000
"""Numbers of up to 10^±2000 are compared; beyond, only unequal ones can be told apart."""
BASE_DIGITS = 80
_POINTS = (
    Fraction(1237, 947), Fraction(2111, 907), Fraction(733, 1031), Fraction(3137, 1013), Fraction(5009, 1201),
    Fraction(-1231, 953), Fraction(-2741, 1009),
)  # fmt: skip


@dataclass
class Sight:
    """What one evaluation met: the largest |log10| of any part, and the magnitude of the largest part."""

    span: float = 1.0
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
        return any(_agree_at_points(x, y) for x, y in _logarithms(gold, given))

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
            return any(_rounds(x, y, rounding) for x, y in _logarithms(gold, given))
        return any(_agree(x, y, {}) for x, y in _logarithms(gold, given))

    def proportional(self, gold: Node, given: Node, positive: bool) -> bool:
        """Whether given = c·gold for one constant c, positive if asked, at every sample point."""
        return any(_proportional(x, y, positive) for x, y in _logarithms(gold, given))

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
    """Equality of functions: at three or more positive points, and wherever both are real at negative ones."""
    names = symbols(gold) | symbols(given)
    agreed = 0
    for shift, point in enumerate(_POINTS):
        env = _env(names, shift)
        try:
            if point < 0 and not _both_real(gold, given, env):
                continue
            if not _agree(gold, given, env):
                return False
        except (UndefinedError, GoldUndefinedError):
            continue
        agreed += point > 0
    if not agreed:
        raise GoldUndefinedError
    if agreed < 3:
        raise UndecidedError("no value at enough points")
    return True


def _proportional(gold: Node, given: Node, positive: bool) -> bool:
    names = symbols(gold) | symbols(given)
    ratios = []
    for shift in range(len(_POINTS)):
        env = _env(names, shift)
        try:
            a, b = evaluate(gold, env, Sight()), evaluate(given, env, Sight())
        except UndefinedError:
            continue
        if abs(_real(a)) < 1e-40 or abs(_real(b)) < 1e-40:
            return False
        ratios.append((a, b))
    if len(ratios) < 3 or not names:
        return False
    if positive and any(mp.re(_real(b) / _real(a)) < 0 for a, b in ratios):
        return False
    (a0, b0), rest = ratios[0], ratios[1:]
    return all(abs(_real(a * b0 - b * a0)) <= mp.mpf(10) ** -30 * abs(_real(a * b0)) for a, b in rest)


def _both_real(gold: Node, given: Node, env: Mapping[str, Fraction]) -> bool:
    mp.dps = BASE_DIGITS
    return all(abs(mp.im(_real(evaluate(node, env, Sight())))) < mp.mpf(10) ** -50 for node in (gold, given))


def _env(names: frozenset[str], shift: int) -> dict[str, Fraction]:
    """A value for each symbol, a function of its name and of the point only."""
    base = _POINTS[shift]
    return {
        name: base * (1 + Fraction(int.from_bytes(hashlib.sha256(name.encode()).digest()[:2], "big") % 997, 1009))
        for name in names
    }


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
        value = _apply(node, [evaluate(arg, env, sight) for arg in node.args])
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


def _root(a: Any, n: Any) -> Any:
    if mp.im(a) == 0 and mp.re(a) < 0 and n == int(mp.re(n)) and int(mp.re(n)) % 2:
        return -mp.root(-mp.re(a), int(mp.re(n)))
    return _power(a, 1 / n)


def _gamma(a: Any) -> Any:
    if abs(a) > mp.mpf(10) ** 12:
        raise TooLargeError
    return mp.gamma(a + 1)


def _cot(a: Any) -> Any:
    return mp.cos(a) / mp.sin(a)


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
    "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "cot": _cot, "sec": mp.sec, "csc": mp.csc,
    "arcsin": mp.asin, "arccos": mp.acos, "arctan": mp.atan, "arccot": mp.acot, "arcsec": mp.asec, "arccsc": mp.acsc,
    "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "exp": mp.exp, "ln": mp.log,
    "log": lambda a, base: mp.log(a) / mp.log(base),
}  # fmt: skip
