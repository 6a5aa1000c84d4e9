"""Tests of reward models: a tiny model, and one thread for its tensors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.tiny import tiny_reward_model


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """On a busy machine, threads that share tiny tensors only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="package")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_reward_model(tmp_path_factory.mktemp("reward_model"))
