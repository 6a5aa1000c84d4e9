"""Evaluation of a tree to many digits; runs only in a worker, which the parent kills if it takes too long."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from mpmath import mp  # type: ignore[import-untyped]

from agentrl_math.exact import InexactError, TooLargeError, UndefinedError, exact
from agentrl_math.expr import Node

MAX_SPAN = 2_000
"""Numbers up to 10^±2000 are compared; beyond that, only inequality can be shown."""
MAX_TURN_BITS = 100_000
"""Maximum size of an angle whose sine is computed."""


@dataclass
class Sight:
    """Sizes met in one evaluation: the largest |log10| of any part, the largest part, and whether it left the reals."""

    span: float = 1.0
    left: bool = False
    scale: Any = field(default_factory=lambda: mp.mpf(1))

    def see(self, value: Any) -> Any:
        """Record the size of a value and return it."""
        size = abs(value)
        if size and mp.isfinite(size):
            self.span = max(self.span, abs(float(mp.mag(size)) * 0.30103))
            self.scale = max(self.scale, size)
        return value


def evaluate(node: Node, env: Mapping[str, Fraction], sight: Sight) -> Any:
    """Return a Fraction if the value is rational and small, else an mpmath number; UndefinedError if there is none."""
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
            sight.see(_exp(2 * abs(real(args[0]))))  # its distance from 1
        if not isinstance(value, Fraction) and mp.im(value) and not any(mp.im(real(arg)) for arg in args):
            sight.left = True
    if isinstance(value, Fraction):
        value = _seen_fraction(value, sight)
    else:
        if not mp.isfinite(value):
            raise UndefinedError(node.op)
        sight.see(value)
    return value


def _seen_fraction(value: Fraction, sight: Sight) -> Any:
    """Record the size of a fraction; comparing a literal of 120 digits needs more than 120 digits."""
    bits = max(value.numerator.bit_length(), value.denominator.bit_length())
    sight.span = max(sight.span, bits * 0.30103)
    if bits > 20_000:
        return sight.see(real(value))
    sight.scale = max(sight.scale, abs(real(value)))
    return value


def _avoid_pole(node: Node, args: list[Any], env: Mapping[str, Fraction], sight: Sight) -> None:
    r"""Raise UndefinedError if a divisor or the argument of a logarithm is zero, which digits alone cannot show."""
    if node.op in _POLES:
        part = Node(_POLES[node.op], node.args)
        value = _apply(part, args)
    elif node.op in ("div", "ln", "log") or (node.op == "pow" and mp.re(real(args[1])) < 0):
        at = 1 if node.op == "div" else 0
        part, value = node.args[at], args[at]
    else:
        return
    if _vanishes(part, value, env, sight):
        raise UndefinedError(node.op)


def _vanishes(node: Node, value: Any, env: Mapping[str, Fraction], sight: Sight) -> bool:
    """Return whether an expression that is zero to all its digits stays zero with many more."""
    if isinstance(value, Fraction):
        return value == 0
    if abs(value) > mp.mpf(10) ** -20 * sight.scale:
        return False
    span = _span(node, env)
    with mp.workdps(mp.dps + 3 * span):
        return bool(abs(real(evaluate(node, env, Sight()))) < mp.mpf(10) ** -(2 * span + 20))


def _span(node: Node, env: Mapping[str, Fraction]) -> int:
    sight = Sight()
    evaluate(node, env, sight)
    if sight.span > MAX_SPAN:
        raise TooLargeError
    return int(sight.span)


def _rounded(node: Node, value: Any, env: Mapping[str, Fraction], sight: Sight) -> Any:
    """Return floor or ceiling; next to an integer, compute more digits to find the side."""
    value = real(value)
    whole = mp.nint(mp.re(value))
    if mp.mag(whole) > MAX_SPAN or abs(mp.re(value) - whole) > mp.mpf(10) ** -20 * sight.scale:
        return _apply(node, [value])
    arg = node.args[0]
    gap = Node("add", (arg, Node("num", value=Fraction(-int(whole)))))
    if _vanishes(gap, mp.re(value) - whole, env, sight):
        return Fraction(int(whole))
    with mp.workdps(mp.dps + 3 * _span(gap, env)):
        return _apply(node, [real(evaluate(arg, env, Sight()))])


def _apply(node: Node, args: list[Any]) -> Any:
    if all(isinstance(arg, Fraction) for arg in args) and node.op != "unknown":
        try:
            return exact(Node(node.op, tuple(Node("num", value=arg) for arg in args)), 20_000)
        except (InexactError, TooLargeError):
            pass
    try:
        return _FUNCTIONS[node.op](*map(real, args)) if node.op != "unknown" else _unknown(str(node.value), *args)
    except (TooLargeError, UndefinedError):
        raise
    except (ZeroDivisionError, ValueError, OverflowError, KeyError) as problem:
        raise UndefinedError(node.op) from problem


def real(value: Any) -> Any:
    """Return the value as an mpmath number."""
    return mp.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else value


def _unknown(name: str, arg: Any) -> Any:
    """Evaluate an arbitrary smooth injective function that represents an unknown f."""
    seed = 2 + ord(name) / mp.mpf(64)
    return mp.exp(mp.sin(seed * real(arg))) + seed * real(arg)


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
    """Return the function with TooLargeError for arguments of more than `bits` bits."""

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
