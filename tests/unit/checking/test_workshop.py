"""What a package is built and installed with."""

from __future__ import annotations

from pathlib import Path

from agentrl.checking.workshop import build_requirements


def test_what_a_build_needs_and_this_environment_lacks_is_named(tmp_path: Path) -> None:
    required = ["setuptools>=1", "setuptools>=9999", "no-such-backend", "no-such-backend>=2; python_version < '3'"]
    (tmp_path / "pyproject.toml").write_text(f"[build-system]\nrequires = {required}\n")
    assert build_requirements(tmp_path) == ["setuptools>=9999", "no-such-backend"]
