"""`agentrl env`: what is installed, and what one environment offers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentrl.cli.env import COMMANDS
from agentrl.cli.main import main
from agentrl.config.schema import Config
from agentrl.env.adapter import ADAPTERS
from agentrl.plugins import registry
from agentrl.training import launch

ENVIRONMENT = '''
from pydantic import Field

from agentrl.env import Env, EnvConfig, Limits, Message, Task, reward, tool

class Keys(EnvConfig):
    start: int = Field(ge=1, description="where to begin")
    mood: str | None = None

class Mine(Env):
    """Count.

    Not shown."""

    Config, limits = Keys, Limits(max_turns=3)

    def preflight(self):
        return "one abacus"

    def tasks(self, split):
        return (lambda rng: Task(f"from {self.config.start}")) if split == "train" else [Task("x")] * 1200

    def setup(self, task, ctx):
        return [Message(role="user", content=f"count\\n{task.id}")]

    @tool
    def next(self, number: int) -> int:
        """Add one."""
        return number + 1

    @reward(weight=0.5, scope="turn")
    def right(self, ctx):
        return 1.0
'''


def shown(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["env", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_group_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["env", command, "--help"])
    assert ended.value.code == 0
    assert f"agentrl env {command}" in capsys.readouterr().out


def test_the_group_without_a_command_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["env"])
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in COMMANDS)


def test_list_names_every_environment_with_its_package_and_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown("list", capsys=capsys)
    for name in ("code", "functions", "guess", "math", "search"):
        assert f"0.1.0  agentrl-env-{name}  (owner: -)" in text
    assert "Guess a hidden number in several turns" in text
    assert text.count("this machine: ") == 5
    adapters = registry.announced(ADAPTERS).values()
    assert all(f"{item.name}:ID" in text and f"{item.distribution}  (adapter)" in text for item in adapters)


def test_codes_in_the_text_of_an_environment_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(ENVIRONMENT.replace("Count.", "Count.\\x1b[2J\\u202e"))
    text = shown("show", str(tmp_path / "mine.py"), "--env.start", "7", capsys=capsys)
    assert "Count.\u241b[2J\ufffd" in text
    assert "\x1b" not in text


def test_show_says_everything_that_an_environment_offers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(ENVIRONMENT)
    text = shown("show", str(tmp_path / "mine.py"), "--env.start", "7", capsys=capsys)
    for line in (
        "Count.",
        f"  {tmp_path / 'mine.py'}",
        "  one abacus",
        "  --env.start: int = 7",
        "      where to begin",
        "  --env.mood: str | None (not set)",
        "  max_turns           3",
        "  right  weight 0.5  per turn",
        "tool next",
        "  Add one.",
        "  train  endless",
        "  test   1,200 tasks",
        "  from 7",
        "  count",
    ):
        assert line in text.splitlines()
    assert "Not shown" not in text
    assert "sha256" in text


def test_show_has_every_first_message_with_its_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = '{"id": "1", "type": "function", "function": {"name": "next", "arguments": {"number": 3}}}'
    messages = f'[Message(role="system", content=""), Message(role="assistant", content="", tool_calls=[{call}])]'
    (tmp_path / "mine.py").write_text(re.sub(r"return \[Message.*", f"return {messages}", ENVIRONMENT))
    text = shown("show", str(tmp_path / "mine.py"), "--env.start", "7", capsys=capsys)
    assert text.endswith('\nsystem\n  (empty)\n\nassistant\n  next({"number": 3})\n')


@pytest.mark.parametrize(
    ("doc", "summary"), [("", ""), ('    """Answer a question.\n\n    Not shown."""\n', "Answer a question.\n")]
)
def test_show_has_the_docstring_of_a_function(
    doc: str, summary: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(f"async def agent(task, ctx, model):\n{doc}    await model.ask('Hi')\n")
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"number": {n}}}\n' for n in range(60)))
    text = shown("show", str(tmp_path / "mine.py"), "--env.data", str(tmp_path / "rows.jsonl"), capsys=capsys)
    assert text.startswith(f"{tmp_path / 'mine.py'}\n{summary}\nclass\n")


def test_show_says_of_which_package_a_version_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown("show", "guess", capsys=capsys).startswith("guess (agentrl-env-guess 0.1.0)\n")
    game = shown("show", "gym:Taxi-v4", capsys=capsys)
    assert re.match(r"gym:Taxi-v4 \(agentrl-adapter-gymnasium 0\.1\.0, gymnasium \d[\w.]*\)\n", game)


@pytest.mark.parametrize("command", ["show", "check"])
@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("agentrl://127.0.0.1:9/guess", "only runs can use it (--env). For anything else take the machine that serves"),
        ("ws://127.0.0.1:9/guess", "no address of an environment: write agentrl://HOST:PORT/NAME for one of `agentrl"),
    ],
)
def test_an_address_is_refused_with_what_to_give(
    command: str, address: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["env", command, address]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)"])
@pytest.mark.parametrize("method", ["preflight", "tasks", "setup"])
def test_an_environment_that_ends_the_process_is_named(
    method: str, end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = re.sub(rf"(def {method}.*\n)", rf"\1        {end}\n", f"import os, sys\n{ENVIRONMENT}")
    (tmp_path / "mine.py").write_text(ends)
    assert main(["env", "show", str(tmp_path / "mine.py"), "--env.start", "7"]) == 2
    assert "SystemExit: 0 (mine.py:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["shwo", "guess"], "unknown command of agentrl env 'shwo'. Did you mean 'show'?"),
        (["show"], "the following arguments are required: NAME (see `agentrl env show --help`)"),
        (["show", "ges"], "Did you mean 'guess'?"),
        (["show", "guess", "--env.hihg", "3"], "Did you mean 'env.high'?"),
        (["show", "guess", "--steps", "3"], "--steps has no effect here"),
        (["show", "FILE"], "env.start is required: give --env.start VALUE"),
    ],
)
def test_what_cannot_be_shown_is_one_message(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(ENVIRONMENT)
    assert main(["env", *(str(tmp_path / "mine.py") if word == "FILE" else word for word in words)]) == 2
    assert message in capsys.readouterr().err


def test_eval_scores_a_model_in_the_environment_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    scored: list[Config] = []
    monkeypatch.setattr(launch, "evaluate", lambda config, began: scored.append(config))
    assert main(["env", "eval", "guess", "./model", "--env.high", "20", "--eval.tasks", "8"]) == 0
    assert main(["eval", "./model", "--env", "guess", "--env.high", "20", "--eval.tasks", "8"]) == 0
    [named, plain] = scored
    assert named == plain
    assert (named.env[0].name, named.env[0].options, named.eval.tasks, named.model.name) == (
        "guess", {"high": 20}, 8, "./model",
    )  # fmt: skip


def test_eval_refuses_what_an_evaluation_does_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "eval", "guess", "./model", "--lr", "1e-5"]) == 2
    assert "--lr has no effect in an evaluation" in capsys.readouterr().err
    assert main(["env", "eval", "gues"]) == 2
    assert "guess" in capsys.readouterr().err
