"""A packaged environment, as somebody else gets it: its wheel, installed into an empty folder, trains."""

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

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


def pip(*words: str) -> None:
    """Run pip without an index: everything that a wheel needs is here."""
    quiet = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "-q"]
    subprocess.run([sys.executable, "-m", "pip", *words[:1], *quiet, *words[1:]], check=True, timeout=120)


def test_a_wheel_in_an_empty_folder_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, wheels, installed, empty = (tmp_path / name for name in ("sums", "wheels", "site", "empty"))
    empty.mkdir()
    write_package(PackageName("ada", "sums"), "single", source)
    pip("wheel", str(source), "--wheel-dir", str(wheels))
    pip("install", "--target", str(installed), *map(str, wheels.glob("*.whl")))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.chdir(empty)
    run = Run(empty / "run")
    try:
        run.train(tiny_model(tmp_path / "model"), "--env", "ada/sums", "--steps", "1")
        assert run.end(400) == 0, run.said
        assert run.summary().counts.trained == BATCH
        manifest = read_manifest(RunFolder(run.path))
        assert manifest is not None
        [env] = manifest.envs
        assert (env.distribution, env.version) == ("agentrl-env-ada-sums", "0.1.0")
        assert {file.name for file in env.files} == {"__init__.py", "env.py", "py.typed"}
    finally:
        run.close()
