"""Fixtures of the real stack: a run of the command line, the stage its episodes wait on, and a clean end."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.runs import Run, Stage


@pytest.fixture(autouse=True, scope="module")
def _collected() -> Iterator[None]:
    """What engines leave to the garbage collector is collected in their own module, under its warning filters.

    Set up before every other fixture of the module, so torn down after all of them.
    """
    yield
    gc.collect()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path / "run")
    yield run
    run.close()
