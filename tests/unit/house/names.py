"""Which names of agentrl nobody reads: definitions, and reads of them with the class that they are read of.

A read `x.name` counts for the class of `x` where annotations, constructors and return types tell it, and for every
class otherwise. An import, a keyword of a call and an assignment are no reads.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.unit.house.source import Source

ANY = "*"  # the owner of a read whose class is not known
MODULE = ""  # the owner of a bare name: no member of a class, except in the body of a class
Function = ast.FunctionDef | ast.AsyncFunctionDef
VALIDATORS = {"field_validator", "model_validator"}  # pydantic calls what they decorate
WORD = re.compile(r"[\w.:/-]+")


@dataclass(frozen=True)
class Definition:
    """One name, with the class it stands in ("" at the top of a module) and the lines it covers."""

    path: str
    owner: str
    name: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.path}: {'.'.join(filter(None, (self.owner, self.name)))}"


@dataclass(frozen=True)
class Read:
    """One use of a name: of the class `owner`, or of `ANY`."""

    path: str
    line: int
    owner: str
    name: str


@dataclass
class Class:
    """What is known of a class: the annotations of its fields, what its methods return, its bases."""

    bases: list[str]
    types: dict[str, str] = field(default_factory=dict)


def definitions(file: Source) -> Iterator[Definition]:
    """Every function, class, method, field and constant of the file, except magic ones."""

    def of(body: list[ast.stmt], owner: str) -> Iterator[Definition]:
        for node in body:
            for name in _defined(node):
                if not (name.startswith("__") and name.endswith("__")) and name != "_":
                    yield Definition(file.path, owner, name, node.lineno, node.end_lineno or node.lineno)
            if isinstance(node, ast.ClassDef):
                yield from of(node.body, node.name)
            if isinstance(node, ast.If | ast.Try):
                yield from of(node.body, owner)

    yield from of(file.tree.body, "")


def _defined(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(decorator_list=marks) if VALIDATORS & {ast.unparse(m).partition("(")[0] for m in marks}:
            return []
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def classes(files: Iterable[Source]) -> dict[str, Class]:
    """Every class of ours by its name; two of one name share an entry."""
    found: dict[str, Class] = {}
    for node in (node for file in files for node in file.nodes if isinstance(node, ast.ClassDef)):
        known = found.setdefault(node.name, Class([]))
        known.bases += [name for name in map(_last, node.bases) if name]
        for item in node.body:
            match item:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                    known.types[name] = class_of(annotation)
                case ast.FunctionDef(name=name, returns=returns) | ast.AsyncFunctionDef(name=name, returns=returns):
                    known.types[name] = class_of(returns)
            for inner in ast.walk(item):
                match inner:
                    case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name), annotation=what):
                        known.types[name] = class_of(what)
    return found


def class_of(annotation: ast.AST | None) -> str:
    """The class that an annotation names: `X`, `X | None`, `"X"`, `a.X`; ANY for anything that needs thought."""
    match annotation:
        case ast.Name(id="Any" | "Self" | "object") | None:
            return ANY
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Constant(value=str(text)):
            return class_of(ast.parse(text, mode="eval").body)
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return class_of(left)
    return ANY


def reads(file: Source, known: dict[str, Class], functions: dict[str, str]) -> list[Read]:
    """Every read of a name in the file."""
    found = [Read(file.path, line, ANY, name) for line, name in _plain_reads(file)]
    in_classes = {id(node) for each in file.nodes if isinstance(each, ast.ClassDef) for node in _own(each)}
    for node in file.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.append(Read(file.path, node.lineno, ANY if id(node) in in_classes else MODULE, node.id))
    for scope, owner in _scopes(file.tree, ""):
        types = _variables(scope, owner, known, functions)
        for node in _own(scope):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.append(Read(file.path, node.lineno, _type(node.value, types, known, functions), node.attr))
    return found


def _plain_reads(file: Source) -> Iterator[tuple[int, str]]:
    """Whole strings such as "stage" or "agentrl.weights.plugin:register", attributes of match patterns."""
    documented = {id(node.value) for node in file.nodes if isinstance(node, ast.Expr)}
    exported = {
        id(s) for n in file.nodes if isinstance(n, ast.Assign) and _last(n.targets[0]) == "__all__" for s in ast.walk(n)
    }
    for node in file.nodes:
        match node:
            case ast.Constant(value=str(text)) if id(node) not in documented | exported and WORD.fullmatch(text):
                yield from ((node.lineno, part) for part in re.split(r"\W", text))
            case ast.MatchClass(kwd_attrs=attributes):
                yield from ((node.lineno, name) for name in attributes)
            case ast.AugAssign(target=ast.Attribute(attr=name)):
                yield node.lineno, name


def _scopes(node: ast.AST, owner: str) -> Iterator[tuple[ast.AST, str]]:
    """The module and every function, with the class whose `self` it has."""
    if isinstance(node, ast.Module | Function):
        yield node, owner
    for child in ast.iter_child_nodes(node):
        yield from _scopes(child, child.name if isinstance(child, ast.ClassDef) else owner)


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope without those of the functions in it; classes and lambdas belong to it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, Function):
            yield child
            yield from _own(child)
        else:
            yield from (inner for part in (*child.decorator_list, child.args) for inner in ast.walk(part))


def _variables(scope: ast.AST, owner: str, known: dict[str, Class], functions: dict[str, str]) -> dict[str, str]:
    """The class of each local variable whose every binding tells the same; ANY for the others."""
    types: dict[str, str] = {}

    def bind(name: str, kind: str) -> None:
        types[name] = kind if types.get(name, kind) == kind else ANY

    if isinstance(scope, Function):
        arguments = [*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs]
        for argument in arguments:
            bind(argument.arg, class_of(argument.annotation) if argument.annotation else ANY)
        if owner and arguments and arguments[0].arg == "self":
            types["self"] = owner
    for node in _own(scope):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                bind(name, class_of(annotation))
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                bind(name, _type(value, types, known, functions))
            case ast.Name(id=name, ctx=ast.Store()) if name not in types:
                types[name] = ANY
    return types


def _type(node: ast.AST, types: dict[str, str], known: dict[str, Class], functions: dict[str, str]) -> str:
    """The class of an expression, or ANY."""
    match node:
        case ast.Name(id=name):
            return types.get(name, ANY)
        case ast.Attribute(value=value, attr=name):
            return _member(_type(value, types, known, functions), name, known)
        case ast.Call(func=ast.Name(id=name)) if name in known:
            return name
        case ast.Call(func=ast.Name(id=name)):
            return functions.get(name, ANY)
        case ast.Call(func=ast.Attribute() as method):
            return _type(method, types, known, functions)
        case ast.Await(value=value):
            return _type(value, types, known, functions)
    return ANY


def _member(owner: str, name: str, known: dict[str, Class]) -> str:
    for each in family(owner, known):
        if name in known[each].types:
            return known[each].types[name]
    return ANY


def family(name: str, known: dict[str, Class]) -> set[str]:
    """A class of ours with everything above and below it."""
    above = {name} & known.keys()
    grown = True
    while grown:
        more = {base for each in above for base in known[each].bases if base in known}
        more |= {other for other, what in known.items() if above & set(what.bases)}
        grown = not more <= above
        above |= more
    return above


def _last(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return _last(value)
    return ""


def unread(files: list[Source], readers: list[Source], words: set[str]) -> list[Definition]:
    """Definitions of `files` that no reader reads, except inside the definition; `words` are read by documents."""
    known = classes(readers)
    functions: dict[str, str] = {}
    for node in (node for file in readers for node in file.tree.body if isinstance(node, Function)):
        kind = class_of(node.returns)
        functions[node.name] = kind if functions.get(node.name, kind) == kind else ANY  # files have functions alike
    by_name: dict[str, list[Read]] = {}
    for read in (read for file in readers for read in reads(file, known, functions)):
        by_name.setdefault(read.name, []).append(read)
    found = [each for file in files for each in definitions(file)]
    return [
        each
        for each in found
        if each.name not in words and not any(_reads(r, each, known) for r in by_name.get(each.name, ()))
    ]


def _reads(read: Read, defined: Definition, known: dict[str, Class]) -> bool:
    if read.path == defined.path and defined.first <= read.line <= defined.last:
        return False
    if read.owner in (ANY, MODULE) or not defined.owner:
        return read.owner == ANY or defined.owner == MODULE == read.owner
    return defined.owner in family(read.owner, known)
