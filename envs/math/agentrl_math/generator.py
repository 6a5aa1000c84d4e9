"""Endless arithmetic tasks by level, with a fixed split into training and held-out tasks."""
# ruff: noqa: RUF001  (intended sign)

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement

HELD_OUT = 4
"""One problem in HELD_OUT is never trained on."""
DIGITS = range(2, 10)
LEVELS = (1, 2, 3, 4)
TEST_SIZE = 256
"""Number of held-out problems of a level above 1."""
SIGNS = ("+", "×")


@dataclass(frozen=True)
class Problem:
    """One problem; `key` is its identity, which determines its split."""

    key: str
    question: str
    answer: str


def problem(level: int, rng: random.Random, held_out: bool = False) -> Problem:
    """Draw a problem of this level from the training or the held-out split."""
    while True:
        drawn = _DRAW[level](rng)
        if is_held_out(level, drawn.key) == held_out:
            return drawn


def held_out_problems(level: int) -> list[Problem]:
    """Return the held-out problems, which are fixed: at level 1 every held-out pair in both orders and operations."""
    if level == 1:
        return [_one_digit(a, b, sign) for pair in held_out_pairs() for a, b in _orders(pair) for sign in SIGNS]
    rng, found = random.Random(f"agentrl-math/test/{level}"), dict[str, Problem]()
    while len(found) < TEST_SIZE:
        drawn = problem(level, rng, held_out=True)
        found.setdefault(drawn.key, drawn)
    return list(found.values())


def is_held_out(level: int, key: str) -> bool:
    """Return whether a problem is never trained on, by its hash alone, independent of the seed."""
    if level == 1:
        return key in {_pair_key(*pair) for pair in held_out_pairs()}
    return _hash(f"{level}/{key}") % HELD_OUT == 0


@lru_cache(maxsize=1)
def held_out_pairs() -> tuple[tuple[int, int], ...]:
    """Return the 9 of the 36 unordered pairs of 2..9 with the smallest hashes."""
    pairs = sorted(combinations_with_replacement(DIGITS, 2), key=lambda pair: _hash(_pair_key(*pair)))
    return tuple(sorted(pairs[: len(pairs) // HELD_OUT]))


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(f"agentrl-math/{text}".encode()).digest()[:8], "big")


def _pair_key(a: int, b: int) -> str:
    return f"{min(a, b)},{max(a, b)}"


def _orders(pair: tuple[int, int]) -> list[tuple[int, int]]:
    return sorted({pair, pair[::-1]})


def _one_digit(a: int, b: int, sign: str) -> Problem:
    return Problem(_pair_key(a, b), f"What is {a} {sign} {b}?", str(a + b if sign == "+" else a * b))


def _draw_one_digit(rng: random.Random) -> Problem:
    return _one_digit(rng.choice(DIGITS), rng.choice(DIGITS), rng.choice(SIGNS))


def _draw_two_digits(rng: random.Random) -> Problem:
    a, b, sign = rng.randint(10, 99), rng.randint(10, 99), rng.choice(("+", "-", "×"))
    if sign == "-":
        a, b = max(a, b), min(a, b)
    value = {"+": a + b, "-": a - b, "×": a * b}[sign]
    return Problem(_pair_key(a, b), f"What is {a} {sign} {b}?", str(value))


def _draw_steps(rng: random.Random) -> Problem:
    """Draw three to five operands with brackets; all intermediate values are whole numbers."""
    text, value = str(start := rng.randint(2, 20)), start
    for _ in range(rng.randint(2, 4)):
        operand = rng.randint(2, 12)
        sign = rng.choice("+-×" if abs(value) < 200 else "+-")
        value = {"+": value + operand, "-": value - operand, "×": value * operand}[sign]
        text = f"({text}) {sign} {operand}" if sign == "×" and not text.isdigit() else f"{text} {sign} {operand}"
    return Problem(text, f"What is {text}?", str(value))


_STORIES: tuple[tuple[str, Callable[[int, int, int], int]], ...] = (
    ("{name} has {a} {thing}s and buys {b} more. Then {name} gives away {c}. How many {thing}s are left?",
     lambda a, b, c: a + b - c),
    ("{name} packs {a} boxes with {b} {thing}s each. {c} {thing}s do not fit. How many {thing}s are there in all?",
     lambda a, b, c: a * b + c),
    ("A {thing} costs {a} dollars. {name} buys {b} of them and has {c} dollars left. "
     "How many dollars did {name} have at first?", lambda a, b, c: a * b + c),
    ("{name} collects {a} {thing}s a day for {b} days, and then loses {c}. How many {thing}s does {name} have now?",
     lambda a, b, c: a * b - c),
    ("There are {a} shelves with {b} {thing}s each and {c} shelves with {a} {thing}s each. "
     "How many {thing}s are there?", lambda a, b, c: a * b + c * a),
    ("{name} reads {a} pages on Monday, twice as many on Tuesday, and {b} on each of the next {c} days. "
     "How many pages is that?", lambda a, b, c: 3 * a + b * c),
)  # fmt: skip
_NAMES = ("Ana", "Ben", "Chen", "Dara", "Emil", "Fatima", "Goran", "Hana")
_THINGS = ("apple", "book", "pencil", "stamp", "marble", "ticket", "shell", "card")


def _draw_story(rng: random.Random) -> Problem:
    index = rng.randrange(len(_STORIES))
    story, value = _STORIES[index]
    a, b, c = rng.randint(3, 20), rng.randint(3, 20), rng.randint(2, 9)
    question = story.format(name=rng.choice(_NAMES), thing=rng.choice(_THINGS), a=a, b=b, c=c)
    return Problem(f"{index}/{a}/{b}/{c}", question, str(value(a, b, c)))


_DRAW: dict[int, Callable[[random.Random], Problem]] = {
    1: _draw_one_digit, 2: _draw_two_digits, 3: _draw_steps, 4: _draw_story,
}  # fmt: skip
