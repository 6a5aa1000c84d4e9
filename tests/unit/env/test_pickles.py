"""A class that no other process can import comes along with its code, and with the names of its annotations."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agentrl.env import Env, Message, Task, resolve, reward
from agentrl.env.registry import ENVIRONMENTS
from agentrl.errors import ConfigError
from agentrl.plugins.files import load_path
from agentrl.plugins.pickles import dump, name_of

SCRIPT = '''
from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Literal

from agentrl.env import Context, Env, EnvConfig, Limits, Message, Task, reward, shared, tool
from agentrl.env.registry import ENVIRONMENTS
from agentrl.plugins.pickles import dump, name_of
from pydantic import Field

FACTOR = 3

def times(number: int) -> int:
    return number * FACTOR

class Base(Env):
    limits = Limits(max_turns=2)

    def tasks(self, split: str) -> list[Task]:
        return [Task(split)]

    @tool
    def look(self, where: Literal["left", "right"]) -> str:
        """Look around."""
        return f"{where}: {self.table}"

class Mine(Base):
    class Config(EnvConfig):
        high: int = Field(2, ge=1, description="a number")

    @shared
    def table(self) -> str:
        return f"{times(self.config.high)} {math.pi:.2f}"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="user", content=self.table)]

    @reward
    def right(self, ctx: Context) -> float:
        return float("yes" in ctx.text)

if __name__ == "__main__":
    assert name_of(ENVIRONMENTS, Mine) == ""
    dump(ENVIRONMENTS, Mine, Path(sys.argv[1]))
'''
PLAY = """
import sys
from agentrl.env import Message, make_env, play
look = {"function": {"name": "look", "arguments": {"where": "left"}}}
call = Message(role="assistant", content="", tool_calls=[look])
[played] = play(make_env(sys.argv[1], high=5), [call, "yes"])
print(played.messages[0]["content"], "|", played.messages[2]["content"], "|", played.signals[0].value)
"""


@pytest.fixture(scope="module")
def pickled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pickled")
    (folder / "script.py").write_text(SCRIPT)
    subprocess.run([sys.executable, folder / "script.py", folder / "env.pkl"], check=True, timeout=60)
    return folder / "env.pkl"


def test_a_class_of_a_script_plays_in_another_process(pickled: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PLAY, str(pickled)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert answer.stdout == "15 3.14 | left: 15 3.14 | 1.0\n", answer.stderr


def test_a_class_of_a_package_beside_a_notebook_plays_in_another_process(tmp_path: Path) -> None:
    package, out = tmp_path / "pk", tmp_path / "out"
    package.mkdir()
    out.mkdir()
    (package / "__init__.py").touch()
    (package / "helpers.py").write_text("FACTOR = 3\n\ndef times(number):\n    return number * FACTOR\n")
    body = SCRIPT.partition("if __name__")[0].partition("FACTOR")
    rest = body[2].partition("class Base")
    (package / "envs.py").write_text(
        f"{body[0]}from . import helpers\n\nclass Base{rest[2]}".replace("{times(", "{helpers.times(")
    )
    write = (
        "from pk.envs import *; assert not name_of(ENVIRONMENTS, Mine); dump(ENVIRONMENTS, Mine, Path('out/env.pkl'))"
    )
    subprocess.run([sys.executable, "-c", write], check=True, timeout=60, cwd=tmp_path)
    command = [sys.executable, "-c", PLAY, "env.pkl"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=out)
    assert answer.stdout == "15 3.14 | left: 15 3.14 | 1.0\n", answer.stderr


def test_a_pickle_that_was_written_again_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "env.pkl"
    dump(ENVIRONMENTS, _class("One"), path)
    assert resolve(str(path)).__name__ == "One"
    assert load_path(ENVIRONMENTS, str(path)) is load_path(ENVIRONMENTS, str(path))
    path.unlink()
    dump(ENVIRONMENTS, _class("Other"), path)
    assert resolve(str(path)).__name__ == "Other"


def _class(name: str, **body: object) -> type[Env]:
    return type(name, (Env,), {"tasks": lambda self, split: [Task("a")], "setup": lambda self, task, ctx: [], **body})


def test_a_class_that_holds_a_lock_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'^Locked cannot be pickled \(TypeError: .*env="./file\.py:Locked"$'):
        dump(ENVIRONMENTS, _class("Locked", lock=threading.Lock()), tmp_path / "env.pkl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "words"), [(b"no pickle", "cannot be loaded: "), (b"\x80\x04K\x01.", "is not an agentrl.env.Env class")]
)
def test_a_file_that_holds_no_class_is_refused(data: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "env.pkl").write_bytes(data)
    with pytest.raises(ConfigError, match=words):
        resolve(str(tmp_path / "env.pkl"))


def test_an_announced_class_has_its_name_and_one_of_a_file_its_path(tmp_path: Path) -> None:
    assert name_of(ENVIRONMENTS, resolve("guess")) == "guess"
    (tmp_path / "script.py").write_text(SCRIPT)
    path = f"{tmp_path / 'script.py'}:Mine"
    assert name_of(ENVIRONMENTS, resolve(path)) == path


def test_a_class_of_a_function_or_a_package_has_no_name() -> None:
    assert name_of(ENVIRONMENTS, _class("Local")) == ""
    assert name_of(ENVIRONMENTS, InPackage) == ""
    assert name_of(ENVIRONMENTS, _class("Gone", __module__="gone.envs")) == ""


class InPackage(Env):
    def tasks(self, split: str) -> list[Task]:
        return [Task("a")]

    def setup(self, task: Task, ctx: object) -> list[Message]:
        return []

    @reward
    def nothing(self, ctx: object) -> float:
        return 0.0
