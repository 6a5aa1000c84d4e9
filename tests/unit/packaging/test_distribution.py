"""Nothing asks for `agentrl` of the package index, which is somebody else's project: ours is `agentrl-core`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

from agentrl import __version__
from agentrl.packaging.scaffold import TEMPLATES, PackageName, write_package
from agentrl.records.manifest import packages, plugin_source
from agentrl.rollout.renderer import Renderer
from tests.unit.house.source import ROOT

PROJECTS = [ROOT / "pyproject.toml", *sorted(ROOT.glob("*/*/pyproject.toml"))]
TEXTS = ("*.md", "docs/**/*.md", "*/*/README.md", "Makefile", "*/agentrl*/**/*.py", "agentrl/**/*.py")
ASKED = re.compile(r"\bagentrl\[\w|install ['\"]?agentrl\b(?!-)")


def required(project: Path) -> Iterator[str]:
    """The names of the distributions of ours that a project asks for."""
    table = tomllib.loads(project.read_text())["project"]
    lines = [
        *table["dependencies"],
        *(line for extra in table.get("optional-dependencies", {}).values() for line in extra),
    ]
    yield from (name for line in lines if (name := re.split(r"[^\w.-]", line)[0]).startswith("agentrl"))


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.parent.name)
def test_a_project_asks_for_ours_alone(project: Path) -> None:
    assert set(required(project)) == {"agentrl-core"}


@pytest.mark.parametrize("template", TEMPLATES)
def test_so_does_a_new_package(template: str, tmp_path: Path) -> None:
    write_package(PackageName("ada", "new"), template, tmp_path / "new")
    assert set(required(tmp_path / "new" / "pyproject.toml")) == {"agentrl-core"}


def test_no_text_tells_to_install_the_other_one() -> None:
    files = [path for pattern in TEXTS for path in ROOT.glob(pattern) if path.name != "CHANGELOG.md"]
    assert len(files) > 300
    assert [(path.name, found[0]) for path in files if (found := ASKED.search(path.read_text()))] == []


def test_the_installed_distribution_is_found_by_its_name() -> None:
    assert packages()["agentrl-core"] == __version__
    assert plugin_source("renderer", Renderer).distribution == "agentrl-core"
    assert {point.name for point in distribution("agentrl-core").entry_points} >= {"agentrl", "sandbox"}
