"""What real engines leave to the garbage collector is collected in their own module, under its warning filters."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _collected() -> Iterator[None]:
    """Set up before every other fixture of the module, so torn down after all of them."""
    yield
    gc.collect()
