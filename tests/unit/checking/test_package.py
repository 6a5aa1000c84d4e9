"""What the modules of a package need, which a dependency has to declare."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrl.checking.package import _undeclared


def undeclared(folder: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return sorted(_undeclared(folder, {"agentrl-core"}))


@pytest.mark.parametrize(
    "text",
    [
        "import json, agentrl.env, mine.other",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import no_such_module",
        "import typing\nif typing.TYPE_CHECKING:\n    import no_such_module",
        "try:\n    import no_such_other\nexcept ImportError:\n    import json",
        "def f():\n    try:\n        import no_such_other\n    except (KeyError, ModuleNotFoundError):\n        pass",
    ],
)
def test_what_a_module_can_do_without_needs_no_dependency(text: str, tmp_path: Path) -> None:
    assert undeclared(tmp_path, {"mine/__init__.py": text}) == []


@pytest.mark.parametrize(
    "text",
    [
        "import no_such_module.io",
        "def later():\n    from no_such_module import DataFrame",
        "if not TYPE_CHECKING:\n    import no_such_module",
        "if TYPE_CHECKING:\n    import json\nelse:\n    import no_such_module",
        "try:\n    import no_such_other\nexcept ImportError:\n    import no_such_module",
        "try:\n    import no_such_module\nexcept ValueError:\n    pass",
    ],
)
def test_what_a_module_needs_is_named_with_its_file(text: str, tmp_path: Path) -> None:
    said = ["mine/__init__.py imports no_such_module: no dependency declares it"]
    assert undeclared(tmp_path, {"mine/__init__.py": text}) == said


def test_programs_that_a_package_carries_as_data_are_no_modules(tmp_path: Path) -> None:
    broken = {"mine/__init__.py": "", "mine/tasks/broken.py": "def f(:", "mine/tasks/other.py": "import no_such_module"}
    assert undeclared(tmp_path, broken) == []
    assert undeclared(tmp_path, {"mine/odd.py": "def f(:"}) == [
        "mine/odd.py cannot be imported: invalid syntax (odd.py, line 1)"
    ]
