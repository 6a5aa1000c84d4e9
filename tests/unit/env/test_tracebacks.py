"""An error names the author's own line, not a library's, and its traceback is kept."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentrl.env import EnvDriver, Episode, StopReason, Task, resolve
from agentrl.errors import EnvError
from agentrl.plugins.tracebacks import MAX_CHARS, describe_error, home_of, traced

FILE = """
import json
from fancylib.core import parse
from agentrl.env import Env, Message, Reply, Task, reward, tool

class Mine(Env):
    def tasks(self, split):
        return [Task("one")]
    def setup(self, task, ctx):
        if task.id == "library":
            parse("x")  # line 11
        if task.id == "standard":
            json.loads("{")  # line 13
        return [Message(role="user", content="hi")]
    @reward
    def deep(self, ctx):
        return parse(ctx.text)  # line 17
    @reward(scope="group")
    async def best(self, episodes):
        return [parse(episode.text) for episode in episodes]  # line 20
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvDriver:
    library = tmp_path / "site-packages" / "fancylib"
    library.mkdir(parents=True)
    (library / "__init__.py").touch()
    (library / "core.py").write_text("def parse(text):\n    return {}[text]\n")
    monkeypatch.syspath_prepend(str(library.parent))
    for name in [name for name in sys.modules if name.partition(".")[0] == "fancylib"]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "mine.py").write_text(FILE)
    return EnvDriver(resolve(str(tmp_path / "mine.py"))())


@pytest.mark.parametrize(("task", "line"), [("library", 11), ("standard", 13)])
async def test_an_error_below_the_authors_code_names_the_authors_line(driver: EnvDriver, task: str, line: int) -> None:
    with pytest.raises(EnvError, match=rf"Mine\.setup raised \w+: .*\(mine\.py:{line}\)") as caught:
        await driver.reset(Task(task))
    assert "Traceback (most recent call last)" in traced(caught.value)
    assert f"line {line}, in setup" in traced(caught.value)
    assert first_line(traced(caught.value)).endswith(f'mine.py", line {line}, in setup')


async def test_an_invalid_signal_keeps_the_whole_traceback(driver: EnvDriver) -> None:
    await driver.reset(Task("x"))
    await driver.step("said")
    (signal,) = await driver.finish(StopReason.ENV_DONE)
    assert signal.reason == "KeyError: 'said' (mine.py:17)"
    assert "core.py" in signal.traceback
    assert first_line(signal.traceback).endswith('mine.py", line 17, in deep')
    ((first,), _) = await driver.score_group([Episode(Task("x"), n, (), (), StopReason.ENV_DONE) for n in range(2)])
    assert first.reason == "KeyError: '' (mine.py:20)"
    assert "core.py" in first.traceback
    assert first_line(first.traceback).endswith('mine.py", line 20, in best')
    await driver.close()


def first_line(text: str) -> str:
    return text.splitlines()[1]


def test_the_line_of_a_package_is_the_innermost_of_the_package(tmp_path: Path) -> None:
    inner = tmp_path / "pack" / "deep"
    inner.mkdir(parents=True)
    for folder in (inner.parent, inner):
        (folder / "__init__.py").touch()
    assert home_of(inner / "a.py") == tmp_path / "pack"
    assert home_of(tmp_path / "a.py") == tmp_path / "a.py"


def test_a_very_long_traceback_is_cut_in_the_middle() -> None:
    try:
        raise ValueError("x" * 3 * MAX_CHARS)
    except ValueError as error:
        text = traced(error)
    assert len(text) < MAX_CHARS + 20
    assert text.startswith("Traceback")


def test_an_error_that_was_never_raised_has_no_line() -> None:
    assert describe_error(ValueError("x")) == "ValueError: x"
