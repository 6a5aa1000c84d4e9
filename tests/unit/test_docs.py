"""What README and docs show works: Python runs, shell parses, `agentrl` lines are accepted, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from agentrl.cli.flags import split
from agentrl.cli.main import COMMANDS
from agentrl.settings import load

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *ROOT.glob("envs/*/README.md"),
]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in FENCE.findall(page.read_text()) if found == language]


def pages_with(language: str) -> list[object]:
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES if blocks(page, language)]


@pytest.mark.parametrize("page", pages_with("python"))
def test_python_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks(page, "python")))
    command = [sys.executable, "-W", "error", str(script)]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("page", pages_with("bash"))
def test_shell_blocks_parse_and_agentrl_lines_are_accepted(page: Path) -> None:
    for block in blocks(page, "bash"):
        subprocess.run(["bash", "-n"], input=block, text=True, check=True, timeout=10)
        for line in block.splitlines():
            check_command(shlex.split(line, comments=True))


def check_command(words: list[str]) -> None:
    """An `agentrl` line names a command that exists and sets keys that exist."""
    if not words or words[0] != "agentrl":
        return
    words = words[: words.index(">")] if ">" in words else words
    assert words[1] in COMMANDS
    load(None, split(words[2:])[1])


@pytest.mark.parametrize("page", pages_with("toml"))
def test_toml_blocks_are_configurations(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "toml"):
        if "project" not in tomllib.loads(block):
            (tmp_path / "run.toml").write_text(block)
            load(tmp_path / "run.toml")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    missing = [link for link in links if not re.match("https?:", link) and not (page.parent / link).exists()]
    assert missing == []


def test_the_readme_names_every_command_and_every_everyday_flag() -> None:
    from agentrl.settings import SHORT_FLAGS

    text = (ROOT / "README.md").read_text()
    assert [name for name in COMMANDS if f"`agentrl {name}" not in text] == []
    assert [flag for flag in SHORT_FLAGS if f"--{flag}" not in text] == []
