"""Static analysis of test code: simple assertions become claims, everything else a script for the judge.

Most tests only compare one call, or its distance from a number, with a constant. They become `Claim`s, which need no
second sandbox. All others become a `Script`.
"""

import ast
import builtins
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from agentrl_code.constants import folded
from agentrl_code.scripts import Script, parse, script
from agentrl_code.values import UnplainError, to_tree

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda left, right: _contains(right, left),
    ast.NotIn: lambda left, right: not _contains(right, left),
}
_NO_LITERAL = (UnplainError, ValueError, TypeError, SyntaxError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Claim:
    """One assertion about one call with constant arguments; `holds(value)` is the assertion."""

    text: str
    function: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    holds: Callable[[Any], Any]
    wanted: str


@lru_cache(maxsize=4096)
def plan(source: str, entry: str, setup: str, in_place: bool) -> tuple[Claim, ...] | Script:
    """Return the claims that test code consists of, or its script if it needs the judge."""
    return _claims(folded(parse(source)), entry, parse(setup)) or script(parse(source), entry, in_place)


def _claims(tree: ast.Module, entry: str, setup: ast.Module) -> tuple[Claim, ...]:
    body, parameter, function = _check(tree.body) or (tree.body, "", "")
    own = (_bound(setup) | _bound(tree)) - {entry}
    found = []
    for statement in body:
        if isinstance(statement, ast.Assert) and not isinstance(statement.test, ast.Constant):
            claim = _claim(statement.test, has_abs="abs" not in {*own, entry})
            if claim is None:
                return ()
            name = function if claim.function == parameter else claim.function
            if name != entry and (name in own or hasattr(builtins, name)):
                return ()  # not the program's
            found.append(replace(claim, function=name))
        elif not _is_idle(statement):
            return ()
    return tuple(found)


def _check(body: list[ast.stmt]) -> tuple[list[ast.stmt], str, str] | None:
    """Match HumanEval's `def check(candidate): …` and `check(f)`; return the statements, "candidate" and "f"."""
    match [node for node in body if not _is_idle(node)]:
        case [
            ast.FunctionDef(name=name, args=ast.arguments(args=[ast.arg(arg=parameter)]), decorator_list=[]) as check,
            ast.Expr(value=ast.Call(func=ast.Name(id=called), args=[ast.Name(id=function)], keywords=[])),
        ] if name == called:
            return check.body, parameter, function
    return None


def _claim(test: ast.expr, has_abs: bool) -> Claim | None:
    """Return the claim of an assertion, or None; `has_abs`: the name `abs` is Python's own."""
    try:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return _of_call(test.operand, operator.not_, "something false")
        if not isinstance(test, ast.Compare):
            return _of_call(test, operator.truth, "something true")
        if len(test.ops) != 1 or (isinstance(test.ops[0], ast.Is | ast.IsNot) and not _is_singleton(test)):
            return None
        return _of_comparison(test, _COMPARISONS[type(test.ops[0])], has_abs)
    except _NO_LITERAL:
        return None  # a side is not a literal


def _of_comparison(test: ast.Compare, compare: Callable[[Any, Any], Any], has_abs: bool) -> Claim:
    left, right = test.left, test.comparators[0]
    if not isinstance(left, ast.Call):
        constant = ast.literal_eval(left)
        return _of_call(right, lambda value: compare(constant, value), f"`{ast.unparse(test)}`")
    constant = ast.literal_eval(right)
    if has_abs and (found := _distance(left)):
        call, distance = found
        return _of_call(call, lambda value: compare(distance(value), constant), f"`{ast.unparse(test)}`")
    sign = {ast.Eq: "", ast.NotEq: "another value than "}.get(type(test.ops[0]))
    wanted = f"`{ast.unparse(test)}`" if sign is None else f"{sign}{constant!r}"
    return _of_call(left, lambda value: compare(value, constant), wanted)


def _distance(node: ast.Call) -> tuple[ast.expr, Callable[[Any], Any]] | None:
    """Match `abs(f(x) - 0.5)` or `abs(0.5 - f(x))`; return the call and a function for the distance."""
    match node:
        case ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(left=left, op=ast.Sub(), right=right)], keywords=[]) if (
            isinstance(left, ast.Constant) != isinstance(right, ast.Constant)
        ):
            number = ast.literal_eval(left if isinstance(left, ast.Constant) else right)
            return right if isinstance(left, ast.Constant) else left, lambda value: abs(value - number)
    return None


def _of_call(call: ast.expr, holds: Callable[[Any], Any], wanted: str) -> Claim:
    if (
        not isinstance(call, ast.Call)
        or not isinstance(call.func, ast.Name)
        or any(k.arg is None for k in call.keywords)
    ):
        raise ValueError(ast.unparse(call))
    args = tuple(ast.literal_eval(arg) for arg in call.args)
    kwargs = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    to_tree([args, kwargs])
    return Claim(ast.unparse(call), call.func.id, args, kwargs, holds, wanted)


def _contains(container: Any, item: Any) -> bool:
    """Return `item in container` without iterating over a huge range that a program returned."""
    if type(container) is range:
        return isinstance(item, int | float) and item == int(item) and int(item) in container
    return item in container


def _bound(tree: ast.AST) -> set[str]:
    """Return every name that is bound anywhere in this code."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
    return names


def _is_singleton(test: ast.Compare) -> bool:
    right = test.comparators[0]
    return isinstance(right, ast.Constant) and (right.value is None or isinstance(right.value, bool))


def _is_idle(node: ast.stmt) -> bool:
    """Return whether a statement does not affect the tests: a docstring, a bare name, METADATA, `assert True`, pass."""
    match node:
        case ast.Assert(test=ast.Constant(value=value)):
            return bool(value)
        case ast.Assign(targets=[ast.Name()], value=value):
            return _is_literal(value)
        case ast.Pass() | ast.Expr(value=ast.Constant() | ast.Name()):
            return True
    return False


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except _NO_LITERAL:
        return False
    return True
