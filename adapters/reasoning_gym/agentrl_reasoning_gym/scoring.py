"""The library's scorers, and what keeps them from executing answers."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from typing import Any

import re2

from agentrl_reasoning_gym.library import Entry, dataset, module_of

LITERAL = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion")
"""Their scorers call `eval` on the answer, which is meant to be a list; here it has to be one."""
SYMBOLIC = ("countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration")
"""Their scorers call `sympy.parse_expr` on the answer, which executes it: they run in a sandbox."""
LONGEST = 20_000
NO_NUMBER = re2.compile(r"(?i)(?:^|[^a-z])(?:nan|inf|infinity)j?(?:[^a-z]|$)")


def is_answer(text: str | None, entry: Entry) -> bool:
    """Return whether there is anything to score.

    Not so: no text, one that is longer than `LONGEST` and than twice the right answer, and a NaN or infinity that the
    right answer has not, as every comparison with NaN is false and `min(1.0, nan)` is 1.
    """
    right = str(entry["answer"])
    if text is None or len(text) > max(LONGEST, 2 * len(right)):
        return False
    return bool(text.strip() or not right.strip()) and not (NO_NUMBER.search(text) and not NO_NUMBER.search(right))


class Scorer:
    """The scorer of a dataset in this process."""

    def __init__(self, name: str, keys: Mapping[str, Any]) -> None:
        if name in LITERAL:
            vars(sys.modules[module_of(name)])["eval"] = ast.literal_eval  # hides the built-in one
        self._dataset = dataset(name, keys)

    def __call__(self, answer: str | None, entry: Entry) -> float:
        """Return the score of an answer: 0 for one that is none (`is_answer`) or that the scorer fails on."""
        if not is_answer(answer, entry):
            return 0.0
        try:
            return float(self._dataset.score_answer(answer, entry))
        except Exception:  # noqa: BLE001  (the scorer cannot read what the model wrote, which is a wrong answer)
            return 0.0
