"""Constant folding in test code: `f(3 * 19) == 1 / 4` becomes `f(57) == 0.25`."""

import ast
import operator
from collections.abc import Callable
from typing import Any, TypeVar

MOST_BITS = 1 << 10
"""Maximum size of a folded integer; larger ones are left to the judge, which has limits."""
_NUMBERS = (int, float, complex)
_OPERATORS: dict[type[ast.operator | ast.unaryop], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
Node = TypeVar("Node", bound=ast.AST)


def folded(tree: Node) -> Node:
    """Replace operations on numbers and sums of two strings by their results, in place; return the tree."""
    _Folding().visit(tree)
    return tree


class _Folding(ast.NodeTransformer):
    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Fold an operation on two constants, unless the result is an error or too long."""
        self.generic_visit(node)
        if not isinstance(node.left, ast.Constant) or not isinstance(node.right, ast.Constant):
            return node
        left, right = node.left.value, node.right.value
        is_sum = isinstance(node.op, ast.Add) and type(left) is type(right) is str
        if not is_sum and (not _are_numbers(left, right) or (isinstance(node.op, ast.Pow) and _is_long(left, right))):
            return node
        return _result(node, left, right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Fold the sign of a number."""
        self.generic_visit(node)
        is_number = isinstance(node.operand, ast.Constant) and _are_numbers(node.operand.value)
        return _result(node, node.operand.value) if is_number else node  # type: ignore[attr-defined]


def _result(node: ast.BinOp | ast.UnaryOp, *sides: Any) -> ast.AST:
    try:
        value = _OPERATORS[type(node.op)](*sides)
    except (KeyError, ArithmeticError, ValueError):
        return node
    is_fit = not isinstance(value, int) or value.bit_length() <= MOST_BITS
    return ast.copy_location(ast.Constant(value), node) if is_fit else node


def _are_numbers(*values: object) -> bool:
    return all(type(value) in _NUMBERS for value in values)


def _is_long(base: Any, exponent: Any) -> bool:
    """Return whether the power would be an integer with too many digits."""
    return type(base) is type(exponent) is int and base.bit_length() * abs(exponent) > MOST_BITS
