"""What a package is built and installed with."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrl.checking import workshop
from agentrl.checking.check import SkippedError, Subject
from agentrl.checking.workshop import build_requirements


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("rg:leg_counting", "rg:leg_counting is an environment of another library, which has a package of its own"),
        ("guess==0.1.0", "guess==0.1.0 is installed from agentrl-env-guess 0.1.0: check the folder of its source"),
        ("./examples/coin.py", "coin.py is in no package that announces it"),
    ],
)
def test_an_environment_without_its_source_says_why_its_package_is_not_checked(
    name: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = Subject.named(name, {})
    monkeypatch.setattr(workshop, "getfile", lambda _: f"/site-packages/{name.rpartition('/')[2]}")
    with pytest.raises(SkippedError, match=says):
        workshop.Source.of(subject)


def test_what_a_build_needs_and_this_environment_lacks_is_named(tmp_path: Path) -> None:
    required = ["setuptools>=1", "setuptools>=9999", "no-such-backend", "no-such-backend>=2; python_version < '3'"]
    (tmp_path / "pyproject.toml").write_text(f"[build-system]\nrequires = {required}\n")
    assert build_requirements(tmp_path) == ["setuptools>=9999", "no-such-backend"]
