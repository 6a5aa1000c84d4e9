"""Runs `lanes/` in interpreters that have verifiers: its pins clash with those of the training stack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
LANES = {"0.3": "classic.py", "0.4": "tasksets.py"}


@pytest.mark.parametrize("version", LANES)
@pytest.mark.timeout(600)
def test_environments_of_verifiers_play_unmodified(version: str, tmp_path: Path) -> None:
    python = Path(sys.prefix, f"verifiers-{version}", "bin", "python")
    if not python.exists():
        pytest.skip(f"no interpreter with verifiers {version}: `make test` makes {python}")
    paths = [ROOT, HERE.parent, HERE / "fixtures"]
    command = [python, "-m", "pytest", "-q", "-c", HERE.parent / "pyproject.toml", "-o", f"cache_dir={tmp_path}"]
    done = subprocess.run(
        [*command, HERE / "lanes" / LANES[version]],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
