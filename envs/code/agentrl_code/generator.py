"""Endless easy programming tasks by level, with a fixed split into training and held-out tasks."""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentrl_code.cases import Call, Io, Test
from agentrl_code.problem import Problem

HELD_OUT = 4
"""One problem in HELD_OUT is never trained on."""
LEVELS = (1, 2, 3, 4)
TEST_SIZE = 128
"""Number of held-out problems per level."""
PUBLIC, HIDDEN = 2, 6
_TRIES = 1000


@dataclass(frozen=True)
class Draft:
    """A task in words, as code, and as a function that computes the expected results."""

    words: str
    code: str
    compute: Callable[..., Any]


def problem(level: int, rng: random.Random, held_out: bool = False) -> Problem:
    """Draw a problem of this level from the training or the held-out split."""
    while True:
        draft = _DRAFTS[level](rng)
        if is_held_out(level, draft.words) == held_out and (tests := _tests(level, draft)):
            return _problem(level, draft, tests)


def held_out_problems(level: int) -> list[Problem]:
    """Return the held-out problems, which are always the same."""
    rng, found = random.Random(f"agentrl-code/test/{level}"), dict[str, Problem]()
    for _ in range(_TRIES):
        drawn = problem(level, rng, held_out=True)
        found[drawn.key] = drawn
        if len(found) == TEST_SIZE:
            break
    return list(found.values())


def is_held_out(level: int, words: str) -> bool:
    """Return whether a task is held out, by a hash of its words, so that it does not depend on the seed."""
    return hashlib.sha256(f"{level}/{words}".encode()).digest()[0] % HELD_OUT == 0


def _problem(level: int, draft: Draft, tests: tuple[Test, ...]) -> Problem:
    public = tests[:PUBLIC]
    if level == 4:
        examples = "\n".join(f"Input: {test.stdin.strip()}\nOutput: {test.expected_stdout.strip()}"
                             for test in public if isinstance(test, Io))  # fmt: skip
        words = draft.words.replace("elements of xs", "numbers")
        question = f"Write a Python program that reads one line of whole numbers and prints {words}.\n\n{examples}"
        solution = f"xs = list(map(int, input().split()))\nprint({draft.code})\n"
        return Problem(draft.words, question, tests[PUBLIC:], public, solution=solution)
    signature = _SIGNATURES[level]
    examples = "\n".join(f"f({', '.join(map(repr, test.args))}) == {test.expected!r}"
                         for test in public if isinstance(test, Call))  # fmt: skip
    question = f"Write a Python function {signature} that returns {draft.words}.\n\n{examples}"
    return Problem(
        draft.words,
        question,
        tests[PUBLIC:],
        public,
        entry="f",
        solution=f"def {signature}:\n    return {draft.code}\n",
    )


def _tests(level: int, draft: Draft) -> tuple[Test, ...]:
    """Return public and hidden tests, fixed per task, on distinct inputs; () if one constant passes half of them."""
    rng = random.Random(f"agentrl-code/{level}/{draft.words}")
    inputs = dict[str, tuple[Any, ...]]()
    while len(inputs) < PUBLIC + HIDDEN:
        args = _INPUTS[level](rng)
        inputs[repr(args)] = args
    expected = [draft.compute(*args) for args in inputs.values()]
    if max(map(expected.count, expected)) > HIDDEN // 2:
        return ()
    if level == 4:
        pairs = zip(inputs.values(), expected, strict=True)
        return tuple(Io(f"{' '.join(map(str, xs))}\n", f"{value}\n") for (xs,), value in pairs)
    return tuple(Call("f", args, expected=value) for args, value in zip(inputs.values(), expected, strict=True))


def _formula(rng: random.Random) -> Draft:
    a, b, c = rng.randint(2, 9), rng.randint(1, 9), rng.randint(1, 9)
    return rng.choice([
        Draft(f"{a} * x + {b}", f"{a} * x + {b}", lambda x: a * x + b),
        Draft(f"{a} * x - {b}", f"{a} * x - {b}", lambda x: a * x - b),
        Draft(f"{a} * (x + {b})", f"{a} * (x + {b})", lambda x: a * (x + b)),
        Draft(f"x * x + {a} * x + {c}", f"x * x + {a} * x + {c}", lambda x: x * x + a * x + c),
    ])  # fmt: skip


def _sentence(rng: random.Random) -> Draft:
    a, b = rng.randint(2, 12), rng.randint(2, 12)
    return rng.choice([
        Draft(f"the larger of {a} times x and y plus {b}", f"max({a} * x, y + {b})", lambda x, y: max(a * x, y + b)),
        Draft(f"the smaller of x plus {b} and {a} times y", f"min(x + {b}, {a} * y)", lambda x, y: min(x + b, a * y)),
        Draft(f"x if x is greater than {a}, else {b} times y", f"x if x > {a} else {b} * y",
              lambda x, y: x if x > a else b * y),
        Draft(f"the remainder of {a} times x plus y divided by {b + 10}", f"({a} * x + y) % {b + 10}",
              lambda x, y: (a * x + y) % (b + 10)),
        Draft(f"the distance between {a} times x and {b} times y", f"abs({a} * x - {b} * y)",
              lambda x, y: abs(a * x - b * y)),
    ])  # fmt: skip


def _reduction(rng: random.Random) -> Draft:
    """Draw "the … of the elements of xs that are …, each …", composed from phrases with their code."""
    which, condition, is_taken = _filter(rng)
    change, term, changed = _change(rng)
    name, form, reduce = rng.choice(_REDUCTIONS)
    words = f"{name} of the elements of xs that are {which}{change}"
    code = form.format(items=f"{term} for x in xs if {condition}")
    return Draft(words, code, lambda xs: reduce([changed(x) for x in xs if is_taken(x)]))


def _filter(rng: random.Random) -> tuple[str, str, Callable[[int], bool]]:
    a, b = rng.randint(2, 5), rng.randint(1, 12)
    return rng.choice([
        (f"divisible by {a}", f"x % {a} == 0", lambda x: x % a == 0),
        (f"not divisible by {a}", f"x % {a} != 0", lambda x: x % a != 0),
        (f"greater than {b}", f"x > {b}", lambda x: x > b),
        (f"less than {b}", f"x < {b}", lambda x: x < b),
    ])  # fmt: skip


def _change(rng: random.Random) -> tuple[str, str, Callable[[int], int]]:
    c = rng.randint(2, 9)
    return rng.choice([
        ("", "x", lambda x: x),
        (f", each times {c}", f"{c} * x", lambda x: c * x),
        (f", each plus {c}", f"x + {c}", lambda x: x + c),
        (", each squared", "x * x", lambda x: x * x),
    ])  # fmt: skip


_REDUCTIONS: list[tuple[str, str, Callable[[list[int]], Any]]] = [
    ("the sum", "sum({items})", sum),
    ("the largest (0 if there are none)", "max(({items}), default=0)", lambda found: max(found, default=0)),
    ("the smallest (0 if there are none)", "min(({items}), default=0)", lambda found: min(found, default=0)),
]
_SIGNATURES = {1: "f(x)", 2: "f(x, y)", 3: "f(xs)"}
_DRAFTS = {1: _formula, 2: _sentence, 3: _reduction, 4: _reduction}
_INPUTS: dict[int, Callable[[random.Random], tuple[Any, ...]]] = {
    1: lambda rng: (rng.randint(0, 50),),
    2: lambda rng: (rng.randint(0, 20), rng.randint(0, 20)),
    3: lambda rng: ([rng.randint(-9, 20) for _ in range(rng.randint(1, 7))],),
    4: lambda rng: ([rng.randint(-9, 20) for _ in range(rng.randint(1, 7))],),
}
