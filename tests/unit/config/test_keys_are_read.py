"""No key is silently ignored: each is read somewhere outside the modules that only carry or resolve it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import agentrl
from agentrl.algorithms import algorithms
from agentrl.config import schema as definitions
from agentrl.config.keys import keys, section_of

PACKAGE = Path(agentrl.__file__).parent
# These define, carry, resolve, check or print keys; using them is the business of all others.
CARRIERS = {
    f"config/{name}.py" for name in ("schema", "keys", "loading", "toml", "resolve", "validate", "machine", "doctor")
}
SECTIONS = {
    section.__name__: name for name, info in definitions.Config.model_fields.items() if (section := section_of(info))
}


def reads(tree: ast.AST) -> set[str]:
    """Dotted keys that a module reads: `….section.key`, or `name.key` where `name` was declared to be that section."""
    holders = {**{section: section for section in SECTIONS.values()}, "config": "", **_declared(tree)}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (owner := _last_name(node.value)) in holders:
            section = holders[owner]
            found.add(f"{section}.{node.attr}" if section else node.attr)
    return found


def _declared(tree: ast.AST) -> dict[str, str]:
    """Names (arguments, fields, variables) that hold a section, by annotation or by assignment from `….section`."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name, annotation=note) | ast.AnnAssign(target=ast.Name(id=name), annotation=note):
                words = ast.unparse(note) if note else ""
                names |= [(name, section) for kind, section in SECTIONS.items() if kind in words]
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                names |= _held(targets, values)
            case ast.Assign(targets=[target], value=value):
                names |= _held([target], [value])
    return names


def _held(targets: list[ast.expr], values: list[ast.expr]) -> dict[str, str]:
    pairs = zip(targets, values, strict=False)
    return {
        _last_name(t): _last_name(v) for t, v in pairs if isinstance(v, ast.Attribute) and v.attr in SECTIONS.values()
    }


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def derived(tree: ast.Module) -> set[str]:
    """Dotted keys that a plain method or a property of a section reads, one that derives something for its callers."""
    methods = [
        (SECTIONS[section.name], method)
        for section in tree.body
        if isinstance(section, ast.ClassDef) and section.name in SECTIONS
        for method in section.body
        if isinstance(method, ast.FunctionDef) and all(ast.unparse(d) == "property" for d in method.decorator_list)
    ]
    return {
        f"{section}.{node.attr}"
        for section, method in methods
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute) and _last_name(node.value) == "self"
    }


def unread() -> list[str]:
    files = [
        path
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).as_posix() not in CARRIERS and path.parent.name != "cli"
    ]
    read = set().union(*(reads(ast.parse(path.read_text())) for path in files))
    read |= derived(ast.parse((PACKAGE / "config" / "schema.py").read_text()))
    return [key for key in keys() if key not in read]


def test_every_key_is_read() -> None:
    assert unread() == []


def of_algorithms() -> list[str]:
    """Keys of algorithms that only their own `idle_keys` read."""
    files = [
        path for folder in ("algorithms", "learner", "losses", "training") for path in PACKAGE.glob(f"{folder}/*.py")
    ]
    trees = [ast.parse(path.read_text()) for path in files]
    told = {id(n) for tree in trees for f in ast.walk(tree) if _is_idle_keys(f) for n in ast.walk(f)}
    nodes = [
        node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute) and id(node) not in told
    ]
    read = {node.attr for node in nodes if _last_name(node.value) == "config"}
    return sorted({key for cls in algorithms().values() for key in cls.Config.model_fields} - read)


def _is_idle_keys(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "idle_keys"


def test_every_key_of_an_algorithm_is_read() -> None:
    assert of_algorithms() == []


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("lr = config.learner.lr", "learner.lr"),
        ("def f(section: LearnerSection): return section.lr", "learner.lr"),
        ("class A:\n  held: LearnerSection\n  def f(self): return self.held.lr", "learner.lr"),
        ("chosen = config.learner\nuse(chosen.lr)", "learner.lr"),
        ("a, b = config.engine, config.learner\nuse(b.lr)", "learner.lr"),
        ("self.steps = config.steps", "steps"),
    ],
)
def test_the_scan_sees_each_way_of_reading(source: str, key: str) -> None:
    assert key in reads(ast.parse(source))


def test_the_scan_is_not_fooled_by_other_objects() -> None:
    assert reads(ast.parse("optimizer.lr; report.steps; 'learner.lr'")) == set()
