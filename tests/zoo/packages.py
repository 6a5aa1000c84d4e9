"""Packages with one thing broken: `write` makes the folder of one."""

from __future__ import annotations

from pathlib import Path

PROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "agentrl-env-zoo"
description = "Sums"
readme = "README.md"
version = "0.1.0"
requires-python = ">=3.11"
license = "Apache-2.0"
dependencies = ["agentrl-core"]

[project.optional-dependencies]
test = ["pytest"]

[project.entry-points."agentrl.envs"]
zoo = "agentrl_zoo:Zoo"

[tool.setuptools.packages.find]
include = ["agentrl_zoo*"]

[tool.setuptools.package-data]
"*" = ["*.json"]
"""
MODULE = """\
import json
from pathlib import Path

from agentrl.env import Env, Task, is_in_share, reward

class Zoo(Env):
    def tasks(self, split):
        pairs = json.loads((Path(__file__).parent / "pairs.json").read_text())
        return [Task(f"{a}+{b}", (a, b)) for a, b in pairs if is_in_share(f"{a}+{b}", 0.5) == (split == "test")]

    def setup(self, task, ctx):
        return [{"role": "user", "content": f"{task.id}?"}]

    @reward
    def right(self, ctx):
        return float(ctx.text == str(sum(ctx.task.data)))

    def oracle(self, task):
        return [str(sum(task.data))]
"""
TEST = """\
from agentrl.env.testing import rehearse
from agentrl_zoo import Zoo

def test_a_sum():
    assert rehearse(Zoo(), ["none"]).reward == 0
"""
PAIRS = "[[1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11, 12], [13, 14], [15, 16]]"
GOOD = {
    "pyproject.toml": PROJECT,
    "README.md": "Sums.\n",
    "agentrl_zoo/__init__.py": MODULE,
    "agentrl_zoo/pairs.json": PAIRS,
    "tests/test_zoo.py": TEST,
}
PRINTING = {
    "pyproject.toml": PROJECT.replace("agentrl_zoo:Zoo", "agentrl_zoo.env:Zoo"),
    "agentrl_zoo/__init__.py": 'from agentrl_zoo.env import Zoo\nprint(".", end="")\n',
    "agentrl_zoo/env.py": MODULE,
}
"""Files of a package without a fault that prints, without a line break, when it is imported."""
UTILS = '[tool.setuptools]\npy-modules = ["utils"]\n\n[tool'
CALL_HOME = 'import urllib.request\nurllib.request.urlopen("http://192.0.2.1/pairs.json", timeout=3)\n'
ANIMALS: dict[str, tuple[str, dict[str, str]]] = {
    "anonymous": ("metadata", {"pyproject.toml": PROJECT.replace('description = "Sums"\n', "")}),
    "misnamed": ("metadata", {"pyproject.toml": PROJECT.replace("\nzoo = ", '\n"my zoo" = ')}),
    "rooted": ("metadata", {"pyproject.toml": PROJECT.replace('"agentrl-core"', '"agentrl-core", "m @ file:///m"')}),
    "untested": ("metadata", {"tests/test_zoo.py": ""}),
    "unbuildable": ("build", {"pyproject.toml": PROJECT.replace("setuptools.build_meta", "setuptools.built_meta")}),
    "hollow": ("build", {"pyproject.toml": PROJECT.replace('["agentrl_zoo*"]', '["agentrl_zoo_data*"]')}),
    "greedy": ("build", {"pyproject.toml": PROJECT.replace('zoo*"]', 'zoo*", "tests"]'), "tests/__init__.py": "\n"}),
    "littering": ("build", {"pyproject.toml": PROJECT.replace("[tool", UTILS, 1), "utils.py": "\n"}),
    "boastful": ("build", {"pyproject.toml": PROJECT.replace('Zoo"', 'Zoo"\nother = "agentrl_zoo:Other"')}),
    "outdated": ("imports", {"pyproject.toml": PROJECT.replace('"agentrl-core"', '"agentrl-core", "numpy<1"')}),
    "dependent": ("imports", {"agentrl_zoo/__init__.py": f"import sympy\n{MODULE}"}),
    "clinging": ("imports", {"agentrl_zoo/__init__.py": f"import agentrl_guess\n{MODULE}"}),
    "forgetful": ("offline", {"pyproject.toml": PROJECT.replace('"*" = ["*.json"]', '"*" = ["*.txt"]')}),
    "homesick": ("offline", {"agentrl_zoo/__init__.py": f"{CALL_HOME}{MODULE}"}),
    "lost": ("clean", {"pyproject.toml": PROJECT.replace('["agentrl-core"]', '["agentrl-core", "agentrl-env-maps"]')}),
    "bare": ("clean", {"pyproject.toml": PROJECT.replace('test = ["pytest"]', "test = []")}),
    "timid": ("tests", {"tests/test_zoo.py": "import pytest\n\n@pytest.mark.skip\ndef test_a_sum():\n    pass\n"}),
    "proud": ("tests", {"tests/test_zoo.py": TEST.replace("== 0", "== 1")}),
}  # fmt: skip
"""By name: the check that catches the package, and its files that differ from those of a good one ("": none)."""


def write(folder: Path, name: str, files: dict[str, str]) -> Path:
    """Write the package agentrl_NAME, with these files instead of the good ones."""
    for file, text in {**GOOD, **files}.items():
        if text:
            path = folder / file.replace("agentrl_zoo", f"agentrl_{name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("agentrl_zoo", f"agentrl_{name}").replace("zoo =", f"{name} ="))
    return folder
