"""The shipped sources as syntax trees, and what they import."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[3]
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


INNER_ROOMS = ("agentrl.env.testing", "agentrl.planning.simulation")
"""Folders of a room that are rooms of their own: the testing kit and the simulation run what training runs."""


def room_of(module: str) -> str:
    """`agentrl.engine` for `agentrl.engine.vllm`."""
    inner = (room for room in INNER_ROOMS if f"{module}.".startswith(f"{room}."))
    return next(inner, ".".join(module.split(".")[:2]))


@dataclass(frozen=True)
class Import:
    """One imported name: `from module import name`, or `import module` with an empty name."""

    module: str
    name: str = ""

    def __str__(self) -> str:
        return ".".join(filter(None, (self.module, self.name)))


@dataclass(frozen=True)
class Source:
    """One file: its path in the repository, its dotted module name, its syntax tree."""

    path: str
    module: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.endswith("__init__.py")

    @property
    def folder(self) -> str:
        """The package that holds the file; an `__init__.py` belongs to its own."""
        return self.module if self.is_package else self.module.rpartition(".")[0]

    @property
    def room(self) -> str:
        """`agentrl.engine`, `agentrl.types`, `agentrl` itself, `agentrl_tools.mcp`."""
        return room_of(self.module)

    @property
    def package(self) -> str:
        """A room of agentrl, or the distribution beside it."""
        return self.room if self.module.startswith("agentrl.") else self.module.split(".")[0]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def imports(self) -> list[Import]:
        """Every import anywhere in the file, by statement or by `import_module("…")`."""
        return [found for node in self.nodes for found in self._imported(node)]

    def _imported(self, node: ast.AST) -> Iterator[Import]:
        match node:
            case ast.Import(names=names):
                yield from (Import(alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                here = self.module.split(".")
                base = ".".join(here[: len(here) - level + self.is_package]) if level else ""
                target = ".".join(filter(None, (base, module)))
                yield from (Import(target, alias.name) for alias in names)
            case ast.Call(func=ast.Attribute(attr="import_module") | ast.Name(id="__import__" | "import_module")):
                yield from (
                    Import(a.value) for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)
                )

    @property
    def bound(self) -> set[str]:
        """Names that the file defines or imports at its top level."""
        found: set[str] = set()
        for node in self.tree.body:
            match node:
                case ast.Import(names=names) | ast.ImportFrom(names=names):
                    found |= {alias.asname or alias.name for alias in names}
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    found.add(name)
        return found


def sources(root: Path) -> list[Source]:
    """Every shipped module below `root`; tests are not shipped."""
    folders = [root / "agentrl", root / "sandbox/agentrl_sandbox", root / "tools/agentrl_tools"]
    folders += sorted([*root.glob("envs/*/agentrl_*"), *root.glob("adapters/*/agentrl_*")])
    return [source(root, path, folder.parent) for folder in folders for path in sorted(folder.rglob("*.py"))]


def author_sources(root: Path) -> list[Source]:
    """What an author would write or copy: code of the docs, examples, and the tests of the environments."""
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md")), *sorted(root.glob("envs/*/README.md"))]
    pages += sorted(root.glob("adapters/*/README.md"))
    shown = [(page, "\n".join(PYTHON.findall(page.read_text(encoding="utf-8")))) for page in pages if page.exists()]
    files = [*sorted((root / "examples").glob("*.py")), *sorted(root.glob("envs/*/tests/**/*.py"))]
    files += sorted(root.glob("adapters/*/tests/**/*.py"))
    return [
        *(Source(page.relative_to(root).as_posix(), "docs", ast.parse(code)) for page, code in shown if code),
        *(source(root, path, path.parent) for path in files),
    ]


def source(root: Path, path: Path, above: Path) -> Source:
    parts = path.relative_to(above).with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Source(path.relative_to(root).as_posix(), module, ast.parse(path.read_text(encoding="utf-8")))


class Modules:
    """The modules of `files`: finds the file that an import reads."""

    def __init__(self, files: Sequence[Source]) -> None:
        self._bound = {file.module: file.bound if file.is_package else set() for file in files}

    def target(self, imported: Import) -> str:
        """The module of ours that is imported; the nearest known package above it; "" for one that is not ours."""
        name = str(imported)
        if imported.name and imported.name in self._bound.get(imported.module, ()):
            name = imported.module
        while name and name not in self._bound:
            name = name.rpartition(".")[0]
        return name


def plant(root: Path, path: str, text: str) -> None:
    """Write a file, with its folders, below a root."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text + "\n")
