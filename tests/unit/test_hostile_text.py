"""Text that a model, a tool or a server wrote is read in linear time: no backtracking engine sees it.

What each reading costs by length is printed by `python -m benchmarks.growth`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.growth import ATOMS, Row, env_rows, rollout_rows, tool_rows
from tests.unit.house.source import ROOT, Source, plant, sources

BACKTRACKING = {"re", "regex", "sre_compile", "sre_parse", "fnmatch"}
OURS = {
    "adapters/gymnasium/agentrl_gymnasium/games.py": "what Gymnasium renders and documents",
    "agentrl/checking/leaks.py": "prompts of an environment's author",
    "agentrl/config/environments.py": "names of environments that a user chooses",
    "agentrl/env/adapter.py": "names of environments that a user chooses",
    "agentrl/env/registry.py": "names that packages announce, and an argument of the command line",
    "agentrl/training/launch.py": "names of environments that a user chooses",
    "agentrl/env/tools.py": "docstrings of an environment's author",
    "agentrl/config/models.py": "names of models",
    "agentrl/records/checkpoints.py": "names of a run's own folders",
    "agentrl/records/manifest.py": "names of installed packages",
    "agentrl/report/show.py": "an argument of the command line",
    "agentrl/config/keys.py": "keys of a configuration",
    "agentrl/config/loading.py": "keys and lines of a configuration",
    "agentrl/engine/vllm/settings.py": "names of a model's layers",
    "agentrl/learner/model.py": "names of a model's parameters",
    "agentrl/planning/simulation/changes.py": "keys of a configuration",
    "agentrl/plugins/registry.py": "names of classes that a user chooses",
    "sandbox/agentrl_sandbox/image/rootfs.py": "what ldd prints",
    "sandbox/agentrl_sandbox/leases.py": "command lines and environments of processes, by a pattern of fixed length",
    "sandbox/agentrl_sandbox/packages.py": "metadata of installed packages",
}
"""Modules that never see text which a model, a tool or a server wrote, and what they see."""
BOUNDED = "answers that were bounded, in the worker that can be killed or measured by benchmarks.growth"
MATH = {
    f"envs/math/agentrl_math/{name}.py": BOUNDED
    for name in (
        "answer", "based", "bracketed", "brackets", "compare", "judge", "latex", "listed", "literal", "matrices",
        "measures", "numerals", "parser", "phrases", "prose", "quantities", "relations", "second", "units", "worded",
        "written",
    )
}  # fmt: skip
SCANNED = "answers, with patterns that never go back by more than a bounded number of characters"
ADAPTERS = {
    "adapters/openenv/agentrl_openenv/actions.py": SCANNED,
    "adapters/reasoning_gym/agentrl_reasoning_gym/session.py": SCANNED,
}
ALLOWED = OURS | MATH | ADAPTERS


def backtracking(files: list[Source]) -> Iterator[str]:
    """Every module that imports an engine which backtracks, or the one that hides it."""
    for source in files:
        if {str(imported).split(".")[0] for imported in source.imports} & BACKTRACKING:
            yield source.path


def test_no_backtracking_engine_meets_hostile_text() -> None:
    found = sorted(set(backtracking(sources(ROOT))))
    strangers = [path for path in found if path not in ALLOWED]
    assert strangers == [], "use re2 or methods of str; or say in ALLOWED which text the module sees"
    assert [path for path in ALLOWED if path not in found] == [], "these no longer need their place in ALLOWED"


@pytest.mark.parametrize(
    "code",
    [
        "import re",
        "from re import compile",
        "def f() -> None:\n    import regex as r",
        "__import__('re')",
        "import fnmatch",
    ],
)
def test_an_engine_that_backtracks_is_found(tmp_path: Path, code: str) -> None:
    plant(tmp_path, "tools/agentrl_tools/a.py", code)
    assert list(backtracking(sources(tmp_path))) == ["tools/agentrl_tools/a.py"]


@pytest.mark.parametrize("code", ["import re2", "from agentrl_code import re", "import agentrl.re"])
def test_a_linear_engine_is_not_reported(tmp_path: Path, code: str) -> None:
    plant(tmp_path, "tools/agentrl_tools/a.py", code)
    assert list(backtracking(sources(tmp_path))) == []


ROWS = {f"{row.area}: {row.name}": row for row in itertools.chain(rollout_rows(), tool_rows(), env_rows())}
LENGTH = 4


@pytest.mark.timeout(120)
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_no_repeated_text_makes_a_reader_slow(row: Row) -> None:
    """A cubic or quadratic reading takes minutes at this length, a linear one milliseconds."""
    for atom in ATOMS:
        row.read(row.text(atom, LENGTH * row.size))


def test_the_texts_are_as_long_as_they_say() -> None:
    assert Row("x", "x", len, "a{}b", 100).text("cd", 400) == "a" + "cd" * 200 + "b"
