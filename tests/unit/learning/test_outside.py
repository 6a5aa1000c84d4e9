"""Algorithms and losses that are written outside of agentrl are found by their paths, see their keys and learn."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrl.config.loading import load, of_flags
from agentrl.training.inputs import algorithm_of
from tests.unit.house.source import PYTHON, ROOT
from tests.unit.learning.games import BANDIT
from tests.unit.learning.practice import Practice

PAGE = ROOT / "docs" / "algorithms.md"
FLIPPED = "np.full(len(sample), float(is_best))", "np.full(len(sample), -float(is_best))"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The algorithm of the page."""
    return of_page(tmp_path / "my_algo.py")


def of_page(path: Path) -> Path:
    path.write_text(next(block for block in PYTHON.findall(PAGE.read_text()) if block.startswith(f"# {path.name}")))
    return path


def gain(file: Path) -> float:
    return gain_with([("algo", str(file)), ("algorithm.best", "2")])


def gain_with(flags: list[tuple[str, str]]) -> float:
    config = load(None, of_flags(flags))
    practice = Practice(BANDIT, algorithm_of(config), seed=0)
    start = practice.expected_reward
    return practice.train(BANDIT.batches) - start


def test_the_algorithm_of_the_page_learns(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 25
    assert gain(file) > 0.3


def test_with_its_sign_flipped_it_does_not(file: Path) -> None:
    file.write_text(file.read_text().replace(*FLIPPED, 1))
    assert gain(file) < 0


def test_the_loss_of_the_page_learns_with_an_algorithm_of_agentrl(tmp_path: Path) -> None:
    loss = of_page(tmp_path / "my_loss.py")
    assert len(loss.read_text().split('."""\n\n\n', 1)[1].splitlines()) <= 10
    assert gain_with([("algo", "rloo"), ("algorithm.loss", str(loss))]) > 0.3
    flipped = tmp_path / "flipped.py"
    flipped.write_text(loss.read_text().replace("return -gate", "return gate"))
    assert gain_with([("algo", "rloo"), ("algorithm.loss", f"{flipped}:sapo")]) < 0
