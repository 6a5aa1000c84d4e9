"""What the tests of clusters share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import shared_folder
from tests.tiny import tiny_model
from verification.runs import ENV


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that all hosts see, with an environment and a model."""
    with shared_folder() as folder:
        (folder / "env.py").write_text(ENV)
        tiny_model(folder / "model")
        yield folder
