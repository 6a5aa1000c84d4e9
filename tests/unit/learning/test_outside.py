"""An algorithm that is written outside of agentrl is found by its path, sees its keys and learns."""

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
    path = tmp_path / "my_algo.py"
    path.write_text(next(block for block in PYTHON.findall(PAGE.read_text()) if block.startswith("# my_algo.py")))
    return path


def gain(file: Path) -> float:
    config = load(None, of_flags([("algo", str(file)), ("algorithm.best", "2")]))
    practice = Practice(BANDIT, algorithm_of(config), seed=0)
    start = practice.expected_reward
    return practice.train(BANDIT.batches) - start


def test_the_algorithm_of_the_page_learns(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 30
    assert gain(file) > 0.3


def test_with_its_sign_flipped_it_does_not(file: Path) -> None:
    file.write_text(file.read_text().replace(*FLIPPED, 1))
    assert gain(file) < 0
