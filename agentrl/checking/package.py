"""Package: whether others can install the environment: metadata, wheel, dependencies, and tests without network."""

from __future__ import annotations

import ast
import asyncio
import json
import sys
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from importlib.metadata import distributions, packages_distributions, requires
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from agentrl.checking.check import TASKS, Check, FailedError, Level, SkippedError, Subject, UncheckedError
from agentrl.checking.contract import fail_if
from agentrl.checking.probe import Probe, Verdicts
from agentrl.checking.workshop import Installed, Source, installed, installed_alone, is_met, namespace
from agentrl.env.registry import ENVIRONMENTS
from agentrl.plugins.source import copy_source

CORE = "agentrl-core"
OF_CORE = ("agentrl", "agentrl_sandbox", "agentrl_tools")
"""The modules of that distribution."""
WANTED = ("name", "description", "readme", "requires-python", "license", "dependencies")
TESTS = "tests"
TESTS_S = 7200.0
"""Time for the tests of a package: those of `code` start hundreds of sandboxes."""
WHERE = """\
import importlib.util, sys
out, sys.stdout = sys.stdout, sys.stderr
print(importlib.util.find_spec(sys.argv[1]).origin, file=out)
"""
LOAD = "import sys; from importlib.metadata import EntryPoint; [EntryPoint('', one, '').load() for one in sys.argv[1:]]"
TOO_COMMON = ("tests", "test", "docs", "examples", "utils", "data", "scripts")
"""Modules that would hide those of others."""


async def metadata(subject: Subject) -> str:
    """Check what pyproject.toml says about the package."""
    source = Source.of(subject)
    fail_if(_metadata_faults(source))
    return f"{source.project['name']}: {source.name_of(subject)}"


def _metadata_faults(source: Source) -> Iterator[str]:
    project = source.project
    yield from (f"[project] has no {key}" for key in WANTED if not project.get(key))
    if "version" not in project and "version" not in project.get("dynamic", ()):
        yield "[project] has no version"
    readme = project.get("readme", "")
    if isinstance(readme, str) and not (source.folder / readme).is_file():
        yield f"the readme {readme} does not exist"
    for name in source.announced:
        if not ENVIRONMENTS.is_name(name):
            yield f"{name!r} cannot be the name of an environment: write {ENVIRONMENTS.naming}"
    if CORE not in map(_name, project.get("dependencies", ())):
        yield f"dependencies lack {CORE}"
    yield from (
        f"the dependency {line!r} is an address, which indexes refuse: publish it, and declare its name and version"
        for line in _declared(source)
        if Requirement(line).url
    )
    if not any((source.folder / TESTS).glob("test_*.py")):
        yield f"there are no tests: write {TESTS}/test_{source.folder.name}.py"


async def build(subject: Subject) -> str:
    """Build a wheel, install it over the current environment, and import all that it announces from it."""
    source = Source.of(subject)
    place = await asyncio.to_thread(installed, source)
    module = source.announced[source.name_of(subject)].partition(":")[0]
    file = (await place.run(["-c", WHERE, module], is_offline=False)).strip()
    if not Path(file).is_relative_to(place.packages):
        raise FailedError(f"the wheel {place.wheel.name} lacks the module {module}, which {file or 'nothing'} provides")
    if hiding := sorted(path.name for path in place.packages.iterdir() if path.name.partition(".")[0] in TOO_COMMON):
        raise FailedError(f"the wheel {place.wheel.name} installs {', '.join(hiding)} for everybody: leave it out")
    await place.run(["-c", LOAD, *source.announced.values()])
    return place.wheel.name


async def _place(source: Source) -> Installed:
    """Return the installed package. Raises UncheckedError if it cannot be built, which `build` has said."""
    try:
        return await asyncio.to_thread(installed, source)
    except FailedError as error:
        raise UncheckedError("there is no installed package: see `build`") from error


async def imports(subject: Subject) -> str:
    """Compare what the wheel's modules import with the declared dependencies."""
    source = Source.of(subject)
    place = await _place(source)
    declared = set(map(_name, [*_declared(source), *_required_by_core()]))
    fail_if(sorted(set(_undeclared(place.packages, declared))))
    fail_if(_unmet(source.project.get("dependencies", ())))
    return ""


def _declared(source: Source) -> list[str]:
    """Return the requirements of a package with those of its extras."""
    extras = source.project.get("optional-dependencies", {}).values()
    return [*source.project.get("dependencies", ()), *chain.from_iterable(extras)]


def _unmet(requirements: Iterable[str]) -> Iterator[str]:
    """Yield the requirements of which another version is installed, with which everything else was checked."""
    for requirement in map(Requirement, requirements):
        found = [distribution.version for distribution in distributions(name=requirement.name)]
        if found and not is_met(requirement):
            yield f"the dependency {str(requirement)!r} excludes {found[0]}, which is installed here"


def _required_by_core() -> Iterator[str]:
    """Yield what agentrl itself depends on, without its extras."""
    names = packages_distributions().get("agentrl", ())
    yield from (line for name in names for line in requires(name) or () if "extra ==" not in line)


def _undeclared(packages: Path, declared: set[str]) -> Iterator[str]:
    providers = packages_distributions()
    own = {path.stem for path in packages.iterdir()}
    for file in filter(partial(_is_module, packages), packages.rglob("*.py")):
        try:
            tree = ast.parse(file.read_bytes(), file.name)
        except (SyntaxError, ValueError) as error:
            yield f"{file.relative_to(packages)} cannot be imported: {error}"
            continue
        for module in _imported(tree):
            known = {_name(name) for name in providers.get(module, ())}
            if module in sys.stdlib_module_names or module in own or known & declared:
                continue
            if module in OF_CORE and CORE in declared:
                continue
            what = f", which {' or '.join(sorted(known))} provides" if known else ""
            yield f"{file.relative_to(packages)} imports {module}{what}: no dependency declares it"


def _is_module(packages: Path, file: Path) -> bool:
    """Return whether a file is part of a package; another one is data, such as a program to repair."""
    folders = file.relative_to(packages).parents[:-1]
    return all((packages / folder / "__init__.py").is_file() for folder in folders)


def _imported(tree: ast.AST) -> Iterator[str]:
    """Yield the top-level modules that a file needs: not those of type checkers, nor those it can do without."""
    if isinstance(tree, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in tree.names)
    elif isinstance(tree, ast.ImportFrom) and tree.module and not tree.level:
        yield tree.module.partition(".")[0]
    for node in _needed(tree):
        yield from _imported(node)


def _needed(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node without what is for type checkers alone, or may fail to be imported."""
    if isinstance(tree, ast.If) and ast.unparse(tree.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        yield from tree.orelse
    elif isinstance(tree, ast.Try) and any(map(_is_import_error, tree.handlers)):
        yield from (*tree.handlers, *tree.orelse, *tree.finalbody)
    else:
        yield from ast.iter_child_nodes(tree)


def _is_import_error(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in ("ImportError", "ModuleNotFoundError") for kind in kinds)


def _name(requirement: str) -> str:
    """Return the normalised name of a requirement: `agentrl-core` of `agentrl_core[test]>=1`."""
    return canonicalize_name(Requirement(requirement).name)


async def offline(subject: Subject) -> str:
    """Play the installed environment's own evidence in a process without network."""
    source = Source.of(subject)
    await _check_evidence(subject, await _place(source))
    return _how()


async def tests(subject: Subject) -> str:
    """Run the package's tests against the installed wheel in a process without network."""
    source = Source.of(subject)
    return f"{await _tested(await _place(source))}; {_how()}"


async def clean(subject: Subject) -> str:
    """Do the same where only the package and its dependencies are installed, from an index."""
    source = Source.of(subject)
    if not subject.is_clean:
        raise SkippedError("it takes minutes and an index: add --clean")
    place = await asyncio.to_thread(installed_alone, source)
    await _check_evidence(subject, place)
    count = len(list(place.packages.glob("*.dist-info")))
    return f"{count} distributions installed; {await _tested(place)}; {_how()}"


async def _check_evidence(subject: Subject, place: Installed) -> None:
    probe = Probe(place.source.name_of(subject), subject.options, TASKS // 4)
    said = await place.run(["-m", "agentrl.checking.probe"], stdin=json.dumps(asdict(probe), default=str))
    verdicts: Verdicts = json.loads(said)
    without = (case for case, verdict in verdicts.items() if None in verdict["rewards"].values())
    fail_if(f"a reward has no value without network, for the task and policy {case}" for case in without)


async def _tested(place: Installed) -> str:
    """Run the tests of an installed package in a copy of its folder; returns the last line of pytest."""
    desk = place.home / "desk"
    with zipfile.ZipFile(place.wheel) as wheel:
        modules = {name.partition("/")[0] for name in wheel.namelist()}
    await asyncio.to_thread(copy_source, place.source.folder, desk, *modules)
    words = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", TESTS]
    said = (await place.run(words, "desk", timeout_s=TESTS_S)).strip().splitlines()[-1]
    if " passed" not in said:
        raise FailedError(f"none of the tests in {TESTS} ran: {said}")
    return said


def _how() -> str:
    if namespace():
        return "without network, in a namespace"
    return "without network, by a guard on Python's sockets: this machine allows no network namespace"


CHECKS = (
    Check(
        "metadata", Level.PACKAGE, "Does pyproject.toml say what an index and other users need?",
        "Write what is missing; docs/share-an-env.md shows a complete pyproject.toml.", metadata,
    ),
    Check(
        "build", Level.PACKAGE, "Can the package be built and installed, and does its wheel hold the environment?",
        "List the packages in [tool.setuptools.packages.find], and try `pip wheel --no-deps .`.", build, 300.0,
    ),
    Check(
        "imports", Level.PACKAGE, "Does a dependency declare everything that the package imports?",
        "Add the distribution to dependencies, or to an extra if the environment works without it.", imports, 300.0,
    ),
    Check(
        "offline", Level.PACKAGE, "Does the installed environment work without network?",
        "Ship data inside the package ([tool.setuptools.package-data]), or let a key of Config name a file.", offline,
        600.0,
    ),
    Check(
        "tests", Level.PACKAGE, "Do the package's tests pass against the wheel, without network?",
        "Let the tests use the installed package alone: no files of the source folder, no service.", tests,
        TESTS_S + 300.0,
    ),
    Check(
        "clean", Level.PACKAGE, "Do evidence and tests pass where an index provides all that the package depends on?",
        "Declare what is missing, and publish or pin what the index does not have.", clean, TESTS_S + 2500.0,
    ),
)  # fmt: skip
