"""Sample points at which functions are compared, with mixed signs, orders and sizes, so that floors and roots show."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

_STRICT = (Fraction(1237, 947), Fraction(2111, 907), Fraction(733, 1031), Fraction(3137, 1013), Fraction(5009, 1201))
_FREE = (
    (Fraction(1231, 953), "-"), (Fraction(2741, 1009), "+-"), (Fraction(733, 811), "-+"), (Fraction(3001, 907), "+"),
    (Fraction(2741, 1013), "-+"), (Fraction(3307, 1009), "+-"),
    (Fraction(1048583, 1013), "+"), (Fraction(7000003, 907), "-"), (Fraction(2000003, 911), "-+"),
    (Fraction(4), "+"), (Fraction(5), "-+"), (Fraction(7), "-"), (Fraction(1000), "+-"),
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """A value for every symbol; a `strict` point counts even if the functions leave the reals there."""

    values: dict[str, Fraction]
    strict: bool
    positive: bool


def points(names: frozenset[str]) -> Iterator[Point]:
    """Yield positive fractions first, then points of any sign, order and size, integers last."""
    ordered = sorted(names)
    for base in _STRICT:
        yield Point({name: base * (1 + _share(name)) for name in ordered}, True, True)
    for turn, (base, signs) in enumerate(_FREE):
        ranked = _ranked(ordered, turn)
        values = {
            name: _sign(signs, i) * (base + ranked[name] * (turn + 2) if base.denominator == 1
                                     else base * (1 + (ranked[name] + _share(name)) / len(ordered)))
            for i, name in enumerate(ordered)
        }  # fmt: skip
        yield Point(values, False, all(value > 0 for value in values.values()))


def _ranked(names: list[str], turn: int) -> dict[str, int]:
    """Rank the names: ascending at one point, descending at the next, shuffled from the sixth on."""
    if turn > 4:
        names = sorted(names, key=lambda name: hashlib.sha256(f"{turn} {name}".encode()).digest())
    return {name: rank for rank, name in enumerate(names[::-1] if turn % 2 else names)}


def _sign(signs: str, i: int) -> int:
    return -1 if signs[i % len(signs)] == "-" else 1


def _share(name: str) -> Fraction:
    """Return a number in [0, 1) that depends only on the name."""
    return Fraction(int.from_bytes(hashlib.sha256(name.encode()).digest()[:2], "big") % 997, 1009)
