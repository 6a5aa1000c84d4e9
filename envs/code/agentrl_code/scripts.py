"""Preparation of test code for the judge: assertions are counted, and tests that a runner would call are called.

A test may be a body of asserts, functions `test_…` as for pytest, or classes as for unittest.
"""

import ast
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

BOM = "\ufeff"
"""Some editors put it before a text; Python accepts it only in files."""
COUNT = "__asserted__"
_ANY_ERROR = {"Exception", "BaseException", "AssertionError"}


@dataclass(frozen=True, slots=True)
class Script:
    """Test code for the judge with counted assertions, the modules it needs, and the lines that call in place."""

    source: str
    modules: tuple[str, ...]
    in_place: tuple[int, ...] | bool


def parse(source: str) -> ast.Module:
    """Parse code, with or without a BOM, ignoring its warnings; SyntaxError or ValueError if it is not Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source.removeprefix(BOM))


def asserts(tree: ast.Module) -> bool:
    """Return whether test code asserts anything about more than a constant; changes the tree."""
    return any(isinstance(node, ast.Name) and node.id == COUNT for node in ast.walk(_Counted().visit(tree)))


def script(tree: ast.Module, entry: str, in_place: bool) -> Script:
    """Return the script of test code; changes the tree."""
    used = {
        node.value.id for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    modules = tuple(sorted(used & sys.stdlib_module_names - {entry}))
    tree = _Counted().visit(tree)
    tree.body += parse("\n".join(_runs(tree))).body
    text = ast.unparse(ast.fix_missing_locations(tree))
    lines = tuple(node.lineno for node in ast.walk(parse(text)) if isinstance(node, ast.stmt) and _is_bare_call(node))
    return Script(text, modules, in_place or lines)


def _runs(tree: ast.Module) -> Iterator[str]:
    """Yield what a test runner would do: call functions that are not called yet, and run test classes."""
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name, args=ast.arguments(args=[], kwonlyargs=[]), decorator_list=[]):
                if name.startswith("test") and name not in named:
                    yield f"{name}()"
            case ast.ClassDef(name=name, bases=bases):
                if any(ast.unparse(base).rpartition(".")[2] == "TestCase" for base in bases) and name not in named:
                    yield f"__import__('unittest').defaultTestLoader.loadTestsFromTestCase({name}).debug()"


class _Counted(ast.NodeTransformer):
    """Transformer that adds `__asserted__()` after every assertion that is not about a constant.

    If a test fails unless an exception is raised, the handler of that exception counts as an assertion.
    """

    def visit_Assert(self, node: ast.Assert) -> ast.AST | list[ast.AST]:
        """Count an assertion."""
        return node if isinstance(node.test, ast.Constant) else [node, _count()]

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.AST]:
        """Count `self.assertEqual(…)`; drop `unittest.main()`, which we do ourselves."""
        match node.value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="unittest"), attr="main")):
                return ast.copy_location(ast.Pass(), node)
        is_stated = _is_method(node.value, "assert") and not _is_of_constants(node.value)
        return [node, _count()] if is_stated else node

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.AST]:
        """Count `with self.assertRaises(…):`."""
        self.generic_visit(node)
        is_stated = any(_is_method(item.context_expr, "assert") for item in node.items)
        return [node, _count()] if is_stated else node

    def visit_Try(self, node: ast.Try) -> ast.AST:
        """Count `try: f(-1); assert False` with `except ValueError: pass` in the handler."""
        self.generic_visit(node)
        in_body, in_else = any(map(_is_failure, node.body)), any(map(_is_failure, node.orelse))
        for handler in node.handlers:
            if in_else or (in_body and not _catches_failures(handler)):
                handler.body.insert(0, _count())
        return node


def _count() -> ast.Expr:
    return ast.Expr(ast.Call(ast.Name(COUNT, ast.Load()), [], []))


def _is_failure(node: ast.stmt) -> bool:
    """Return whether this is `assert False`, `raise AssertionError(…)` or `self.fail(…)`."""
    match node:
        case ast.Assert(test=ast.Constant(value=value)):
            return not value
        case ast.Raise(exc=ast.Name(id="AssertionError") | ast.Call(func=ast.Name(id="AssertionError"))):
            return True
        case ast.Expr(value=value):
            return _is_method(value, "fail")
    return False


def _catches_failures(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in _ANY_ERROR) for kind in caught)


def _is_method(node: ast.AST, prefix: str) -> bool:
    """Return whether this calls a method of `self` whose name begins with `prefix`."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
            return name.startswith(prefix)
    return False


def _is_of_constants(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and all(isinstance(arg, ast.Constant) for arg in node.args)


def _is_bare_call(node: ast.stmt) -> bool:
    """Return whether a statement only calls something, other than our own count.

    A method counts only if its arguments contain no call: `out.append(f(xs))` is about the value of `f(xs)`.
    """
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return name != COUNT
        case ast.Expr(value=ast.Call(func=ast.Attribute(), args=args, keywords=keywords)):
            given = [*args, *(keyword.value for keyword in keywords)]
            return not any(isinstance(inner, ast.Call) for arg in given for inner in ast.walk(arg))
    return False
