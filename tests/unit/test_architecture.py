"""The house rules of DESIGN.md section 1 and STYLE.md, proved on the source itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).parents[2]

# What each room may import, besides itself: downwards only, from the top of the list.
ROOMS: dict[str, set[str]] = {
    "types": set(),
    "errors": set(),
    "config": {"types", "errors"},
    "records": {"types", "errors", "config"},
    "env": {"types", "errors", "config"},
    "engine": {"types", "errors", "config"},
    "losses": {"types"},
    "algorithms": {"types", "errors", "losses"},
    "weights": {"types", "errors", "engine"},
    "rollout": {"types", "errors", "engine", "env"},
    "learner": {"types", "errors", "config", "losses", "algorithms", "weights"},
    "metrics": {"types", "errors", "config", "records"},
}
ROOMS["report"] = ROOMS["metrics"] | {"metrics"}
ROOMS["cluster"] = set(ROOMS) - {"report"}
ROOMS["training"] = set(ROOMS)
ROOMS["cli"] = set(ROOMS)
# Edges that are still to be mended: exactly these.
DEBTS = {
    "agentrl/cluster/actors.py: agentrl.cluster imports agentrl.report",
    "agentrl/records/conservation.py: agentrl.records imports agentrl.metrics",
    "agentrl/records/journal.py: agentrl.records imports agentrl.metrics",
    "agentrl/report/transcript.py: agentrl.report imports agentrl.env",
}
ENV_AUTHORS = {"agentrl.types", "agentrl.errors", "agentrl.env"}
LIBRARIES = {
    "ray": ("agentrl/cluster/ray.py",),
    "vllm": ("agentrl/engine/vllm.py", "agentrl/weights/"),
    "deepspeed": ("agentrl/learner/deepspeed.py",),
}
CATCH_ALL = {  # one handler in each, two in errors.py
    "agentrl/errors.py",  # `catch` and `acatch`: an error becomes data
    "agentrl/rollout/boundary.py",  # the boundary between an episode and code that is not ours
    "agentrl/training/loop.py",  # the outermost frame of a run: says why it ended, and raises
    "sandbox/agentrl_sandbox/inside/programs.py",  # the outermost frame of an untrusted program
    "envs/code/agentrl_code/inside/candidate.py",  # the outermost frame of an untrusted program
    "envs/code/agentrl_code/inside/judge.py",  # the outermost frame of test code
    "envs/code/agentrl_code/checkers.py",  # code of the task, on an answer of the program
    "envs/code/agentrl_code/workers.py",  # what a thread was given to do: raised again in who waits for it
    "envs/math/agentrl_math/worker.py",  # the outermost frame of the verifier's process
}
BAD_NAMES = {"util", "utils", "helper", "helpers", "manager", "managers", "misc", "common"}
LIGHT = ("agentrl", "agentrl.env", "agentrl.config.schema", "agentrl.algorithms", "agentrl.cli.main")
HEAVY = ("torch", "ray", "vllm", "deepspeed", "transformers")


@dataclass(frozen=True)
class Source:
    """One file: its path in the repository, its dotted module name, its syntax tree."""

    path: str
    module: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """`agentrl.engine`, `agentrl.types`, `agentrl` itself, or the distribution beside it."""
        parts = self.module.split(".")
        return ".".join(parts[:2]) if parts[0] == "agentrl" else parts[0]


def sources(root: Path) -> list[Source]:
    """Every shipped module below `root`; tests are not shipped."""
    folders = [root / "agentrl", root / "sandbox/agentrl_sandbox", root / "tools/agentrl_tools"]
    folders += sorted((root / "envs").glob("*/agentrl_*"))
    found = []
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found.append(Source(path.relative_to(root).as_posix(), module, ast.parse(path.read_text(encoding="utf-8"))))
    return found


def imports(source: Source) -> Iterator[str]:
    """Every module that is imported anywhere in the file, by statement or by `import_module("…")`."""
    is_package = source.path.endswith("__init__.py")
    for node in ast.walk(source.tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                here = source.module.split(".")
                base = ".".join(here[: len(here) - level + is_package]) if level else ""
                target = ".".join(filter(None, (base, module)))
                yield from (f"{target}.{alias.name}" for alias in names)
            case ast.Call(func=ast.Attribute(attr="import_module") | ast.Name(id="__import__" | "import_module")):
                yield from (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))


def allowed_edges(modules: set[str]) -> dict[str, set[str]]:
    """What each package may import of ours, besides itself."""
    edges = {f"agentrl.{name}": {f"agentrl.{below}" for below in belows} for name, belows in ROOMS.items()}
    edges |= {"agentrl_sandbox": set(), "agentrl_tools": {"agentrl_sandbox", *ENV_AUTHORS}}
    edges["agentrl.__main__"] = {"agentrl.cli"}
    envs = modules - edges.keys() - {"agentrl"}
    return edges | {
        env: {"agentrl_tools", "agentrl_sandbox", *ENV_AUTHORS} for env in envs if env.startswith("agentrl_")
    }


def edge_violations(files: list[Source]) -> Iterator[str]:
    """Imports between our packages that the design does not know."""
    edges = allowed_edges({source.package for source in files})
    for source in files:
        for name in imports(source):
            parts = name.split(".")
            if not parts[0].startswith("agentrl") or name == "agentrl.__version__":
                continue
            target = ".".join(parts[:2]) if parts[0] == "agentrl" else parts[0]
            if source.package not in edges and source.package != "agentrl":
                yield f"{source.path}: {source.package} has no place in the design"
            elif target != source.package and target not in edges.get(source.package, set()):
                yield f"{source.path}: {source.package} imports {target}"


def library_violations(files: list[Source]) -> Iterator[str]:
    """Heavy libraries outside their rooms; anything but the standard library in the sandbox."""
    for source in files:
        for name in {name.split(".")[0] for name in imports(source)}:
            if name in LIBRARIES and not source.path.startswith(LIBRARIES[name]):
                yield f"{source.path}: imports {name}"
            is_backend = name in ("docker", "httpx") and name in Path(source.path).stem
            is_own = name in sys.stdlib_module_names or name.startswith("agentrl") or is_backend
            if source.package == "agentrl_sandbox" and not is_own:
                yield f"{source.path}: imports {name}, the sandbox has the standard library only"


def catch_all_violations(files: list[Source]) -> Iterator[str]:
    """Handlers (and `suppress`) that swallow everything; one that cleans up and raises again swallows nothing."""
    for source in files:
        places = [node.lineno for node in ast.walk(source.tree) if catches_all(node)]
        spare = (source.path in CATCH_ALL) + (source.path == "agentrl/errors.py")
        yield from (f"{source.path}:{line}: catches everything" for line in sorted(places)[spare:])


def catches_all(node: ast.AST) -> TypeGuard[ast.ExceptHandler | ast.Call]:
    """True for a handler or a `suppress` of Exception, BaseException or no type at all."""
    match node:
        case ast.ExceptHandler(body=[*_, ast.Raise(exc=None)]):
            return False
        case ast.ExceptHandler(type=None):
            return True
        case ast.ExceptHandler(type=kinds) if kinds is not None:
            caught = ast.walk(kinds)
        case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress"), args=arguments):
            caught = iter(arguments)
        case _:
            return False
    return any(isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException") for kind in caught)


def stub_violations(files: list[Source]) -> Iterator[str]:
    """Code that is promised and not there."""
    for source in files:
        for node in ast.walk(source.tree):
            names = ast.walk(node.exc) if isinstance(node, ast.Raise) and node.exc is not None else ()
            if any(isinstance(name, ast.Name) and name.id == "NotImplementedError" for name in names):
                yield f"{source.path}: raises NotImplementedError"


def name_violations(files: list[Source]) -> Iterator[str]:
    """Files and folders named after nothing."""
    for source in files:
        words = set(source.module.replace("_", ".").split("."))
        if words & BAD_NAMES:
            yield f"{source.path}: {', '.join(words & BAD_NAMES)} says nothing; name it after what it holds"


RULES = (edge_violations, library_violations, catch_all_violations, stub_violations, name_violations)


def violations(root: Path) -> list[str]:
    """Every broken rule below `root`."""
    files = sources(root)
    return [violation for rule in RULES for violation in rule(files)]


def loaded_by(module: str, path: Path) -> list[str]:
    """The heavy libraries that importing `module` loads."""
    code = f"import sys, {module}; print(*({set(HEAVY)} & sys.modules.keys()))"
    run = subprocess.run([sys.executable, "-c", code], cwd=path, capture_output=True, text=True, check=True, timeout=50)
    return run.stdout.split()


def test_the_house_stands_as_designed() -> None:
    assert len(sources(ROOT)) > 40
    assert set(violations(ROOT)) == DEBTS


@pytest.mark.parametrize("module", LIGHT)
def test_a_light_module_loads_nothing_heavy(module: str) -> None:
    assert loaded_by(module, ROOT) == []


def test_a_heavy_import_is_seen(tmp_path: Path) -> None:
    (tmp_path / "light.py").write_text("import torch_alike\n")
    (tmp_path / "torch_alike.py").write_text("import sys\nsys.modules['torch'] = sys\n")
    assert loaded_by("light", tmp_path) == ["torch"]


PLANTED = [
    ("agentrl/engine/a.py", "from agentrl.env import Env", "agentrl.engine imports agentrl.env"),
    ("agentrl/rollout/a.py", "import agentrl.learner.batch", "agentrl.rollout imports agentrl.learner"),
    ("agentrl/learner/a.py", "from agentrl import cluster", "agentrl.learner imports agentrl.cluster"),
    ("agentrl/learner/a.py", "from ..training import loop", "agentrl.learner imports agentrl.training"),
    ("agentrl/weights/__init__.py", "from ..algorithms import base", "agentrl.weights imports agentrl.algorithms"),
    ("agentrl/types/a.py", "def f() -> None:\n    import agentrl.errors", "agentrl.types imports agentrl.errors"),
    ("agentrl/env/a.py", "from agentrl.records.store import X", "agentrl.env imports agentrl.records"),
    ("agentrl/env/a.py", "import agentrl_sandbox", "agentrl.env imports agentrl_sandbox"),
    ("agentrl/env/a.py", "import importlib\nimportlib.import_module('agentrl.cli')", "agentrl.env imports agentrl.cli"),
    ("agentrl/novelty.py", "from agentrl.training import loop", "agentrl.novelty has no place in the design"),
    ("envs/x/agentrl_x/a.py", "from agentrl.rollout import worker", "agentrl_x imports agentrl.rollout"),
    ("envs/x/agentrl_x/a.py", "import agentrl_y", "agentrl_x imports agentrl_y"),
    ("tools/agentrl_tools/a.py", "from agentrl.config import Config", "agentrl_tools imports agentrl.config"),
    ("sandbox/agentrl_sandbox/a.py", "from agentrl.errors import RunError", "agentrl_sandbox imports agentrl.errors"),
    ("sandbox/agentrl_sandbox/a.py", "import docker", "imports docker, the sandbox"),
    ("agentrl/training/a.py", "import ray", "imports ray"),
    ("agentrl/engine/client.py", "def f() -> None:\n    from vllm.config import VllmConfig", "imports vllm"),
    ("envs/x/agentrl_x/a.py", "import deepspeed", "imports deepspeed"),
    ("agentrl/training/a.py", "try:\n    pass\nexcept Exception:\n    pass", "a.py:3: catches everything"),
    ("agentrl/cli/a.py", "try:\n    pass\nexcept (ValueError, BaseException):\n    f()", "catches everything"),
    ("agentrl/training/a.py", "try:\n    pass\nexcept:\n    pass", "catches everything"),
    ("agentrl/cli/a.py", "from contextlib import suppress\nwith suppress(Exception):\n    pass", "catches everything"),
    (
        "agentrl/rollout/boundary.py",
        "try:\n    f()\nexcept Exception:\n    g()\ntry:\n    f()\nexcept Exception:\n    g()",
        "boundary.py:7: catches everything",
    ),
    ("agentrl/training/a.py", "def f() -> None:\n    raise NotImplementedError('soon')", "raises NotImplementedError"),
    ("agentrl/training/utils.py", "", "says nothing"),
    ("agentrl/env/task_manager.py", "", "says nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "code", "found"), PLANTED)
def test_a_planted_violation_is_found(tmp_path: Path, path: str, code: str, found: str) -> None:
    plant(tmp_path, path, code)
    [violation] = violations(tmp_path)
    assert violation.startswith(path)
    assert found in violation


INNOCENT = [
    ("agentrl/training/a.py", "from agentrl import __version__, cluster\nfrom agentrl.config.resolve import Plan"),
    ("agentrl/training/a.py", "try:\n    pass\nexcept BaseException:\n    print('cleaned up')\n    raise"),
    ("agentrl/training/a.py", "try:\n    pass\nexcept NotImplementedError:\n    pass"),
    ("agentrl/weights/a.py", "import vllm"),
    ("sandbox/agentrl_sandbox/docker.py", "import docker, json\nfrom agentrl_sandbox import limits"),
    ("envs/x/agentrl_x/a.py", "import agentrl_tools, numpy\nfrom agentrl.env import Env\nfrom agentrl_x import b"),
]


@pytest.mark.parametrize(("path", "code"), INNOCENT)
def test_what_the_design_allows_is_no_violation(tmp_path: Path, path: str, code: str) -> None:
    plant(tmp_path, path, code)
    assert violations(tmp_path) == []


def plant(root: Path, path: str, code: str) -> None:
    (root / path).parent.mkdir(parents=True)
    (root / path).write_text(code + "\n")
