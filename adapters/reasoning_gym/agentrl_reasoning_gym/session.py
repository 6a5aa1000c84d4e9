"""What runs inside the sandbox: a scorer of the library whose parser accepts arithmetic and known functions only.

Reads no package of agentrl. `score` is called once per answer, in one interpreter that stays.
"""

import importlib
import importlib.util
import json
import re
import sys
import types
from collections.abc import Callable
from typing import Any

TOKEN = re.compile(r"\s+|\d+\.?\d*|\.\d+|[A-Za-z]\w*|\*\*|[-+*/^(),!|]")
KNOWN = {
    "Abs", "abs", "acos", "acosh", "acot", "asin", "asinh", "atan", "atanh", "cos", "cosh", "cot", "coth", "csc",
    "erf", "exp", "gamma", "ln", "log", "pi", "sec", "sin", "sinh", "sqrt", "tan", "tanh",
}  # fmt: skip
PACKAGES = ("reasoning_gym", "reasoning_gym.algebra", "reasoning_gym.games")


def check(text: str) -> None:
    """Raise ValueError unless the text consists of numbers, operators, single letters and known functions.

    `sympy.parse_expr` executes what it parses; nothing of this kind reaches further than arithmetic.
    """
    end = 0
    for match in TOKEN.finditer(text):
        word = match[0]
        if match.start() != end or (word[0].isalpha() and len(word) > 1 and word not in KNOWN):
            break
        end = match.end()
    if end != len(text):
        raise ValueError(f"not an expression: {text[end : end + 20]!r}")


def guarded(parse: Callable[..., Any]) -> Callable[..., Any]:
    """Return the parser behind the check."""

    def parse_expr(text: str, *args: Any, **options: Any) -> Any:
        check(text)
        return parse(text, *args, **options)

    return parse_expr


def prepare(module: str, name: str, keys: dict[str, Any]) -> Callable[[str], str]:
    """Import one dataset without the other hundred, and return its scorer."""
    spec = importlib.util.find_spec("reasoning_gym")
    assert spec, "the sandbox has the package"
    assert spec.submodule_search_locations
    root = spec.submodule_search_locations[0]
    for package in PACKAGES:
        sys.modules[package] = stub = types.ModuleType(package)
        stub.__path__ = [root + package.removeprefix("reasoning_gym").replace(".", "/")]
    import sympy
    from sympy.parsing import sympy_parser

    parse = sympy_parser.parse_expr
    sympy.parse_expr = sympy_parser.parse_expr = guarded(parse)
    importlib.import_module(module)
    sympy_parser.parse_expr = parse  # sympy's own: `simplify` reads names of units with it
    made = sys.modules["reasoning_gym.factory"].create_dataset(name, seed=0, size=1, **keys)

    def score(request: str) -> str:
        answer, entry = json.loads(request)
        try:
            return json.dumps(float(made.score_answer(answer, entry)))
        except Exception:  # noqa: BLE001  (the scorer cannot read what the model wrote, which is a wrong answer)
            return "0.0"

    return score
