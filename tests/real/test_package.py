"""What somebody else brings: a packaged environment, as its wheel, and a file with an algorithm, in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.packaging.scaffold import PackageName, write_package
from agentrl.records.folder import RunFolder
from agentrl.records.manifest import read_manifest
from tests.real.runs import BATCH, Run
from tests.tiny import tiny_model
from tests.unit.learning.test_outside import of_page

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


MINE = """
from my_algo import Raft

from agentrl.algorithms import Needs
from agentrl.errors import AlgorithmError


class Mine(Raft):
    needs = Needs(group_size=2, columns=frozenset({"reference", "old"}))

    def credit(self, groups):
        super().credit(groups)
        for sample in (sample for samples in groups for sample in samples):
            old, reference = sample.column("old"), sample.column("reference")
            if len(old) != len(sample) or abs(old - reference).max() > 1e-3 or (old >= 0).any():
                raise AlgorithmError(f"before the first update the policy is its reference: {old}, {reference}")
"""
"""The algorithm of docs/algorithms.md, which also asks the run for two columns."""


def pip(*words: str) -> None:
    """Run pip without an index: everything that a wheel needs is here."""
    quiet = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "-q"]
    subprocess.run([sys.executable, "-m", "pip", *words[:1], *quiet, *words[1:]], check=True, timeout=120)


def test_a_wheel_and_an_algorithm_in_an_empty_folder_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, wheels, installed, empty = (tmp_path / name for name in ("sums", "wheels", "site", "empty"))
    empty.mkdir()
    write_package(PackageName("ada", "sums"), "single", source)
    pip("wheel", str(source), "--wheel-dir", str(wheels))
    pip("install", "--target", str(installed), *map(str, wheels.glob("*.whl")))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.chdir(empty)
    run = Run(empty / "run")
    try:
        of_page(empty / "my_algo.py")
        (empty / "mine.py").write_text(MINE)
        given = ("--env", "ada/sums", "--algo", "./mine.py:Mine", "--algorithm.best", "1", "--steps", "1")
        run.train(tiny_model(tmp_path / "model"), *given)
        assert run.end(400) == 0, run.said
        assert run.summary().counts.trained == BATCH
        manifest = read_manifest(RunFolder(run.path))
        assert manifest is not None
        assert manifest.algorithm is not None
        assert [file.name for file in manifest.algorithm.files] == ["mine.py"]
        [env] = manifest.envs
        assert (env.distribution, env.version) == ("agentrl-env-ada-sums", "0.1.0")
        assert {file.name for file in env.files} == {"__init__.py", "env.py", "py.typed"}
    finally:
        run.close()
