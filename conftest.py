"""What all tests share: hypothesis gives the same examples each time; real processes have more time; GPUs are optional.

With `-n 2` one process of pytest runs the real stack while another runs files without it; what is left they share.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from agentrl.config.machine import detect

settings.register_profile("agentrl", deadline=None, database=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile("agentrl")

# Real data is not part of the project: agentrl.env.testing.data_file skips the tests that need it where it is absent.
os.environ.setdefault("AGENTRL_DATA", str(Path(__file__).parents[1] / "shared" / "data"))

# What a developer has added is no part of a test.
os.environ["AGENTRL_HOME"] = str(Path(__file__).parent / "no-home")

REAL = ("tests/real/", "tests/cluster/")
REAL_TIMEOUT_S = 300
EXIT_TIMEOUT_S = 60


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test adds to `sys.path` ends with it: a loaded package adds its folder, whose `tests` would hide ours."""
    monkeypatch.setattr(sys, "path", sys.path.copy())


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs everything."""
    parser.addoption("--long", action="store_true", help="run the tests marked long too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what the machine cannot run as skipped, and what takes long, and give real processes more time."""
    has_gpu = bool(detect().gpus)
    for item in items:
        if item.get_closest_marker("long") and not config.getoption("long"):
            item.add_marker(pytest.mark.skip(reason="takes long: `make test ARGS=--long` runs it"))
        if item.get_closest_marker("gpu") and not has_gpu:  # `keywords` has the names of folders too
            item.add_marker(pytest.mark.skip(reason="no GPU here"))
        if item.get_closest_marker("real") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(REAL_TIMEOUT_S))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Give out whole files in their order, those of the real stack to the first process while there are others."""
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid.split("::", 1)[0]

        def _assign_work_unit(self, node: Any) -> None:
            is_first = node is self.nodes[0]
            chosen = next((file for file in self.workqueue if file.startswith(REAL) == is_first), None)
            if chosen is not None:
                self.workqueue.move_to_end(chosen, last=False)
            super()._assign_work_unit(node)

    config.option.loadscopereorder = False
    return Files(config, log)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End the suite, with the stacks of its threads, where something that a test left keeps Python from exiting.

    The processes of `-n 2` wait for each other, and are ended by the first.
    """
    if not hasattr(config, "workerinput"):
        faulthandler.dump_traceback_later(EXIT_TIMEOUT_S, exit=True, file=sys.__stderr__)
