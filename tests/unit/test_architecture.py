"""The house rules of DESIGN.md section 1 and STYLE.md, proved on the source itself."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.house import rooms
from tests.unit.house.catching import catching_violations, unused_grants
from tests.unit.house.circles import circle_violations
from tests.unit.house.source import ROOT, Source, author_sources, plant, sources

BAD_NAMES = {"util", "utils", "helper", "helpers", "manager", "managers", "misc", "common"}
LIGHT = (
    "agentrl",
    "agentrl.env",
    "agentrl.env.testing",
    "agentrl.config.schema",
    "agentrl.algorithms",
    "agentrl.rollout.episode",
    "agentrl.cli.main",
    "agentrl.report.run",
    "agentrl.training.api",
    "agentrl.planning.simulation.words",
)
HEAVY = ("torch", "ray", "vllm", "deepspeed", "transformers")


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


RULES = (
    rooms.edge_violations,
    rooms.closed_violations,
    rooms.library_violations,
    rooms.declaration_violations,
    catching_violations,
    stub_violations,
    name_violations,
)


def violations(root: Path) -> list[str]:
    """Every broken rule below `root`, each once."""
    files = sources(root)
    found = [violation for rule in RULES for violation in rule(files)]
    return list(dict.fromkeys([*found, *rooms.public_violations(files, author_sources(root))]))


def loaded_by(module: str, path: Path) -> list[str]:
    """The heavy libraries that importing `module` loads."""
    code = f"import sys, {module}; print(*({set(HEAVY)} & sys.modules.keys()))"
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, cwd=path, capture_output=True, text=True, check=True, timeout=240)
    return run.stdout.split()


def shown_rooms(page: str) -> dict[str, set[str]]:
    """The table of a page: what each folder may import. Every folder may import `types` and `errors`."""
    shown: dict[str, set[str]] = {}
    for folder, text in re.findall(r"^\| \[([\w/.]+)\]\(\S+\) \|[^|]*\|([^|]*)\|$", page, re.MULTILINE):
        room = folder.removesuffix(".py").replace("/", ".")
        names = set(re.split(", | and ", text.strip().replace("/", ".").removeprefix("all above except "))) - {""}
        base = {"types", "errors"} if room not in ("types", "errors") else set()
        shown[room] = set(shown) - names if "all above" in text else base | names
    return shown


def test_the_house_stands_as_designed() -> None:
    assert len(sources(ROOT)) > 40
    assert violations(ROOT) == []


def test_no_files_and_no_rooms_import_each_other_in_a_circle() -> None:
    assert circle_violations(sources(ROOT)) == set()


def test_the_page_shows_the_edges() -> None:
    assert shown_rooms((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")) == rooms.ROOMS


def test_every_exception_to_the_one_catch_all_rule_is_used() -> None:
    assert list(unused_grants(sources(ROOT))) == []


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
    ("agentrl/types/a.py", "def f() -> None:\n    import agentrl.config", "agentrl.types imports agentrl.config"),
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
    (
        "agentrl/rollout/boundary.py",
        "try:\n    f()\nexcept Exception:\n    g()\ntry:\n    f()\nexcept Exception:\n    g()",
        "boundary.py:7: catches everything",
    ),
    ("envs/x/agentrl_x/a.py", "import agentrl.env.driver.loop", "reaches into agentrl.env.driver.loop"),
    ("envs/x/tests/test_a.py", "from agentrl.types.messages import Message", "reaches into agentrl.types.messages"),
    ("envs/x/tests/test_a.py", "from tests import evidence", "imports tests.evidence, which is not shipped"),
    ("examples/a.py", "from agentrl.env.base import Env", "reaches into agentrl.env.base"),
    ("docs/a.md", "```python\nfrom agentrl.env.base import Env\n```", "reaches into agentrl.env.base"),
    ("agentrl/cli/a.py", "from agentrl.env.driver.loop import run", "imports agentrl.env.driver.loop.run, a closed"),
    ("agentrl/report/a.py", "from agentrl.env import dry_run", "imports agentrl.env.dry_run, a closed room"),
    ("agentrl/cli/a.py", "from agentrl.config._toml import write", "private to agentrl.config"),
    ("agentrl/cli/a.py", "from agentrl.config.toml import _write", "private to agentrl.config.toml"),
    ("agentrl/cluster/a.py", "import psutil", "a.py: imports psutil"),
    ("agentrl/cli/a.py", "import torch", "a.py: imports torch"),
    ("agentrl/env/a.py", "import rich", "a.py: imports rich"),
    ("agentrl/learner/a.py", "import torchvision", "imports torchvision, which pyproject.toml does not declare"),
    ("agentrl/env/a.py", "def f() -> None:\n    import safetensors", "imports safetensors, which pyproject.toml does"),
    ("envs/guess/agentrl_guess/a.py", "import sympy", "imports sympy, which pyproject.toml does not declare for it"),
    ("agentrl/training/a.py", "def f() -> None:\n    raise NotImplementedError('soon')", "raises NotImplementedError"),
    ("agentrl/training/utils.py", "", "says nothing"),
    ("agentrl/env/task_manager.py", "", "says nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "code", "found"), PLANTED)
def test_a_planted_violation_is_found(tmp_path: Path, path: str, code: str, found: str) -> None:
    plant(tmp_path, path, code)
    violated = violations(tmp_path)
    assert [violation for violation in violated if not violation.startswith(path)] == []
    assert [violation for violation in violated if found in violation] != []


EVERYTHING = [  # what comes before a handler, and the type in it
    ("", "Exception"),
    ("", "(ValueError, BaseException)"),
    ("import builtins", "builtins.Exception"),
    ("from builtins import Exception as E", "E"),
    ("E = (OSError, Exception)", "E"),
    ("E: tuple = (Exception,)\nF = (*E, OSError)", "(KeyError, F)"),
    ("class A:\n    E = Exception | OSError", "A.E"),
]


@pytest.mark.parametrize(("before", "kind"), EVERYTHING)
@pytest.mark.parametrize("form", ["try:\n    f()\nexcept {}:\n    pass", "with suppress(OSError, {}):\n    f()"])
def test_a_planted_catch_all_is_found_under_any_name(tmp_path: Path, before: str, kind: str, form: str) -> None:
    plant(tmp_path, "agentrl/cli/a.py", f"from contextlib import suppress\n{before}\n{form.format(kind)}")
    [violation] = violations(tmp_path)
    assert violation.endswith("catches everything")


SWALLOWING = [
    ("try:\n    f()\nexcept:\n    pass", "a.py:3: catches everything"),
    ("def f(e=Exception):\n    try:\n        f()\n    except e:\n        g()", "a.py:4: catches everything"),
    ("try:\n    f()\nexcept Exception:\n    if x: break\n    raise", "a.py:3: catches everything"),
    ("from contextlib import suppress as calm\nwith calm(Exception): f()", "a.py:2: catches everything"),
    ("import contextlib\ncalm = contextlib.suppress\nwith calm(Exception): f()", "a.py:3: catches everything"),
    ("class A:\n    def __exit__(self, *_):\n        return True", "a.py:2: its exit can return a truth"),
    ("class A:\n    async def __aexit__(self, *e):\n        return self.ok(e)", "a.py:2: its exit can"),
    ("class A:\n    __exit__ = other", "a.py:2: its exit can return a truth"),
    ("from contextlib import suppress\nclass A(suppress):\n    pass", "a.py:2: its exit can return a truth"),
    ("from agentrl.errors import catch\nx = catch(f).value", "a.py:2: turns errors into data"),
    ("from agentrl.errors import acatch as a\nb = a\nx = b(f).value", "a.py:3: turns errors into data"),
    ("from agentrl import errors\nx = errors.catch_exit(f).value", "a.py:2: turns errors into data"),
    ("from agentrl.env import within\nx = within(f(), 1, '')", "a.py:2: turns errors into data"),
    ("await gather(*x, return_exceptions=True)", "a.py:1: drops the errors that gather returns"),
    ("_ = await asyncio.gather(x, return_exceptions=y)", "a.py:1: drops the errors that gather returns"),
]


@pytest.mark.parametrize(("code", "found"), SWALLOWING)
def test_a_planted_way_to_swallow_errors_is_found(tmp_path: Path, code: str, found: str) -> None:
    plant(tmp_path, "agentrl/env/a.py", code)
    assert [violation for violation in violations(tmp_path) if found in violation] != []


INNOCENT = [
    ("agentrl/training/a.py", "from agentrl import __version__, cluster\nfrom agentrl.config.resolve import Plan"),
    ("agentrl/training/a.py", "try:\n    pass\nexcept BaseException:\n    print('cleaned up')\n    raise"),
    ("agentrl/training/a.py", "try:\n    pass\nexcept NotImplementedError:\n    pass"),
    ("agentrl/weights/a.py", "import vllm"),
    ("sandbox/agentrl_sandbox/backends/docker.py", "import docker, json\nfrom agentrl_sandbox import limits"),
    ("envs/x/agentrl_x/a.py", "import agentrl_tools, numpy\nfrom agentrl.env import Env\nfrom agentrl_x import b"),
    ("envs/math/agentrl_math/a.py", "import mpmath, re2, sympy"),
    ("envs/x/tests/test_a.py", "import agentrl\nfrom agentrl import Run\nfrom agentrl.env import testing"),
    ("docs/a.md", "```python\nfrom agentrl.env import play\nimport torch\n```\n```text\nimport agentrl.cli\n```"),
    ("agentrl/training/a.py", "from agentrl.env.driver import loop\nfrom agentrl.training._b import c"),
    ("agentrl/cli/a.py", "class A:\n    def __exit__(self, *_: object) -> None:\n        return None"),
    ("agentrl/cli/a.py", "E = (OSError, ValueError)\ntry:\n    f()\nexcept E:\n    g(Exception)"),
    ("agentrl/cli/a.py", "x = await gather(a, return_exceptions=True)\nawait gather(a, return_exceptions=False)"),
]


@pytest.mark.parametrize(("path", "code"), INNOCENT)
def test_what_the_design_allows_is_no_violation(tmp_path: Path, path: str, code: str) -> None:
    plant(tmp_path, path, code)
    assert violations(tmp_path) == []


def test_a_constant_that_holds_exception_is_known_in_the_files_that_import_it(tmp_path: Path) -> None:
    plant(tmp_path, "agentrl/env/a.py", "ERRORS = (OSError, Exception)")
    plant(tmp_path, "agentrl/env/b.py", "from agentrl.env.a import ERRORS as E\ntry:\n    f()\nexcept E:\n    g()")
    assert violations(tmp_path) == ["agentrl/env/b.py:4: catches everything"]


def test_a_name_that_a_package_defines_is_not_the_module_of_that_name(tmp_path: Path) -> None:
    plant(tmp_path, "agentrl/env/__init__.py", "from agentrl.env.play import play")
    plant(tmp_path, "agentrl/env/play.py", "")
    plant(tmp_path, "agentrl/env/rows.py", "")
    plant(tmp_path, "examples/a.py", "from agentrl.env import play, rows")
    assert violations(tmp_path) == ["examples/a.py: reaches into agentrl.env.rows"]


@pytest.mark.parametrize(
    "back",
    [
        "from agentrl.env.a import x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from agentrl.env.a import x",
        "def f() -> None:\n    from agentrl.env import a",
        "from . import a",
    ],
    ids=["top", "types", "function", "relative"],
)
def test_a_planted_circle_of_files_is_found(tmp_path: Path, back: str) -> None:
    plant(tmp_path, "agentrl/env/a.py", "from agentrl.env import b")
    plant(tmp_path, "agentrl/env/b.py", "import agentrl.env.c")
    plant(tmp_path, "agentrl/env/c.py", back)
    plant(tmp_path, "agentrl/env/d.py", "from agentrl.env import a, b, c")
    assert circle_violations(sources(tmp_path)) == {frozenset(f"agentrl.env.{name}" for name in "abc")}


def test_a_planted_circle_of_rooms_is_found(tmp_path: Path) -> None:
    plant(tmp_path, "agentrl/env/a.py", "def f() -> None:\n    from agentrl.config import a")
    plant(tmp_path, "agentrl/env/b.py", "")
    plant(tmp_path, "agentrl/config/a.py", "")
    plant(tmp_path, "agentrl/config/b.py", "from agentrl.env import b")
    assert circle_violations(sources(tmp_path)) == {frozenset({"agentrl.env", "agentrl.config"})}


def test_an_exception_that_is_not_used_is_found(tmp_path: Path) -> None:
    plant(tmp_path, "agentrl/errors.py", "try:\n    f()\nexcept Exception:\n    g()")
    unused = list(unused_grants(sources(tmp_path)))
    assert "agentrl/errors.py: 2 granted, 1 there" in unused
    assert "agentrl/rollout/boundary.py: 1 granted, 0 there" in unused
    assert "agentrl/cluster/leftovers.py: 1 granted, 0 there" in unused
