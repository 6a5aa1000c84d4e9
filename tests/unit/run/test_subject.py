"""What a run is about is checked before anything heavy starts: the environment speaks for itself."""

from __future__ import annotations

import pytest

from agentrl.config import Config
from agentrl.embedded import EMBEDDED
from agentrl.env import Context, Env, Message, Task
from agentrl.errors import ConfigError
from agentrl.run import opening
from agentrl.run.opening import Subject


class Needy(Env):
    """Needs something of the machine."""

    found = "Programs run on the third shelf."

    def preflight(self) -> str:
        if not self.found:
            raise FileNotFoundError("no shelf: apt-get install shelf")
        return self.found

    def tasks(self, split: str) -> list[Task]:
        return [Task(split)]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="user", content="?")]


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setattr(opening, "resolve", lambda name: {"needy": Needy}[name])
    return Config.model_validate({"env": {"name": "needy"}, "model": {"name": EMBEDDED}})


def test_what_an_environment_found_is_known_before_the_run(config: Config) -> None:
    assert Subject.of(config).notice == "Programs run on the third shelf."


def test_what_an_environment_lacks_is_told_before_the_run(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Needy, "found", "")
    with pytest.raises(ConfigError, match="Needy cannot run here: no shelf: apt-get install shelf"):
        Subject.of(config)
