"""A class that the framework could not honour is rejected when it is made, with the remedy."""

from __future__ import annotations

import pickle
import subprocess
import sys
import timeit
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agentrl.env import (
    EnvConfig,
    EnvDriver,
    GymnasiumEnv,
    Limits,
    Message,
    StopReason,
    Task,
    play,
    resolve,
    reward,
    shared,
    tool,
)
from agentrl.env.definition import SETTINGS
from agentrl.env.signatures import HOOKS
from agentrl.errors import ConfigError, UnknownNameError
from agentrl.types import ToolCall
from tests.unit.env.worlds import Echo

HEAD = """
from functools import wraps
from pydantic import BaseModel, Field
from agentrl.env import Context, Env, EnvConfig, Limits, Message, Task, reward, shared, tool

class Base(Env):
    def tasks(self, split):
        return [Task(f"{split}-1")]
    def setup(self, task, ctx):
        return [Message(role="user", content="?")]
    @reward
    def right(self, ctx):
        return 1.0
    @tool
    def look(self):
        "Look."
        return "nothing"

class Mine(Base):
"""

REFUSED = {
    "an unknown scope": (
        "@reward(scope='step')\ndef a(self, ctx): return 1",
        r"scope='step'.*Known: episode, group, turn",
    ),
    "a weight of nan": ("@reward(weight=float('nan'))\ndef a(self, ctx): return 1", "a weight is a finite number"),
    "a weight that is text": ("@reward(weight='1')\ndef a(self, ctx): return 1", "a weight is a finite number"),
    "a weight without its name": ("@reward(0.5)\ndef a(self, ctx): return 1", r"@reward\(weight=0\.5\)"),
    "a tool with options": ("@tool('name')\ndef a(self): return 1", "@tool .*has no options"),
    "a config that is a plain class": ("class Config:\n  n: int = 3", "Config must derive from agentrl.env.EnvConfig"),
    "a config of pydantic's": (
        "class Config(BaseModel):\n  n: int = 3",
        "Config must derive from agentrl.env.EnvConfig",
    ),
    "a key that names the environment": ("class Config(EnvConfig):\n  name: str = ''", "Config.name cannot be set"),
    "a key of every environment": ("class Config(EnvConfig):\n  weight: float = 1.0", "Config.weight cannot be set"),
    "limits that are a dict": ("limits = {'max_turns': 3}", r"write limits = Limits\(max_turns"),
    "blocking that is text": ("blocking = 'no'", "blocking is 'no'"),
    "Gymnasium's step": ("def step(self, action): return None", "step belongs to Gymnasium.*write respond instead"),
    "Gymnasium's reset": ("def reset(self, seed=None): return None", "write setup"),
    "a setup that yields": ("def setup(self, task, ctx):\n  yield Message(role='user', content='')", "setup yields"),
    "tasks that yield in an async method": (
        "async def tasks(self, split):\n  yield Task('x')",
        "tasks yields in an async .*`def tasks`",
    ),
    "a shared that yields": (
        "@shared\ndef a(self): yield 1",
        "@shared a yields: write @contextlib.contextmanager below",
    ),
    "an async shared that yields": ("@shared\nasync def a(self): yield 1", "write @contextlib.asynccontextmanager"),
    "a limit on the class": ("max_turns = 4", r"max_turns has no effect .*write limits = Limits\(max_turns=4\)"),
    "a time limit on the class": ("tool_timeout_s = 0.5", r"limits = Limits\(tool_timeout_s=0\.5\)"),
    "a setup without a context": ("def setup(self, task): return []", r"setup is called as setup\(task, ctx\)"),
    "tasks without a split": ("def tasks(self): return []", r"tasks is called as tasks\(split\)"),
    "a respond of the context alone": ("def respond(self, ctx): return None", r"respond\(turn, ctx\)"),
    "a respond in another order": (
        "def respond(self, ctx, turn): return None",
        r"respond is called as respond\(turn, ctx\): name the parameters in this order",
    ),
    "a setup in another order": ("async def setup(self, ctx, item): return []", r"setup\(task, ctx\): name"),
    "a static setup in another order": ("@staticmethod\ndef setup(ctx, task): return []", r"setup\(task, ctx\): name"),
    "an async preflight": ("async def preflight(self): return ''", "`def preflight` instead of `async def preflight`"),
    "a hook that is a value": ("canaries = {}", "canaries is {}; it must be a method"),
    "a reward that takes nothing": ("@reward\ndef a(self): return 1", r"a is called as a\(ctx\)"),
    "a group reward of two": ("@reward(scope='group')\ndef a(self, task, episodes): return []", r"a\(episodes\)"),
    "a group reward of the context": (
        "@reward(scope='group')\ndef a(self, ctx): return 1.0",
        r"@reward a has scope 'group' and takes finished episodes instead of ctx: write def a\(self, episodes\)",
    ),
    "a reward that yields": ("@reward\ndef a(self, ctx): yield 1", "@reward a yields"),
    "a reward that is a class method": ("@classmethod\n@reward\ndef a(cls, ctx): return 1", "a is a classmethod"),
    "a tool that is a property": (
        "@property\n@tool\ndef a(self): return 1",
        "@tool a is a property, and agentrl reads methods only: remove @property",
    ),
    "a static reward": (
        "@staticmethod\n@reward\ndef a(ctx): return 1",
        "@reward a is a staticmethod, .*: remove @static",
    ),
    "a static tool": ("@staticmethod\n@tool\ndef a(n: int): return 1", "@tool a is a staticmethod"),
    "a static shared": ("@staticmethod\n@shared\ndef a(): return 1", "@shared a is a staticmethod"),
    "a reward of a class method": ("@reward\n@classmethod\ndef a(cls, ctx): return 1", "@reward on .*a plain method"),
    "a reward of a static method": ("@reward\n@staticmethod\ndef a(ctx): return 1", "@reward on .*a plain method"),
    "a partial reward": ("from functools import partialmethod\na = reward(partialmethod(print))", "a plain method"),
    "a reward that is a tool": ("@reward\n@tool\ndef a(self, ctx): return 1", "@reward a is a @tool too; choose one"),
    "a reward named score": ("@reward\ndef score(self, ctx): return 1", "@reward score is reserved .*my_score$"),
    "a score that is a number": ("score = 1", "score is 1; it must be a method"),
    "limits that are a method": ("def limits(self): return Limits()", "write limits = Limits"),
    "a mix-in's hook": ("pass\nclass Mix:\n tasks = 5\nclass Mine(Mix, Base):\n pass", "Mine: tasks is 5"),
    "a mix-in's step": (
        "pass\nclass Mix:\n @tool\n def step(self): return 1\nclass Mine(Base, Mix):\n pass",
        "@tool step",
    ),
    "a mix-in without the mark": (
        "pass\nclass Mix:\n def right(self, ctx): return 1\nclass Mine(Mix, Base):\n pass",
        "right overrides a @reward",
    ),
    "a reward named code": (
        "@reward\ndef code(self, ctx): return 1",
        "Mine: @reward code is reserved by agentrl; rename it, for example my_code$",
    ),
    "a shared named resources": (
        "@shared\ndef resources(self): return 1",
        "@shared resources is reserved by agentrl; rename it, for example my_resources$",
    ),
    "a tool named close": (
        "@tool\ndef close(self): return 1",
        "@tool close is reserved by agentrl; rename it, for example my_close$",
    ),
    "a reward over a hook": ("@reward\ndef teardown(self, ctx): return 1", "@reward teardown is reserved"),
    "a tool over a setting": ("@tool\ndef limits(self): return 1", "@tool limits is reserved"),
    "a reward of a solution that is text": (
        "solved_reward = '1'",
        "solved_reward is '1'; write a finite number above 0, or None$",
    ),
    "a reward of a solution without an end": (
        "solved_reward = float('inf')",
        "solved_reward is inf; write a finite number above 0, or None$",
    ),
    "a reward of a solution that is true": (
        "solved_reward = True",
        "solved_reward is True; write a finite number above 0, or None$",
    ),
    "a solution that costs": ("solved_reward = -13", "solved_reward is -13; write a finite number above 0, or None$"),
    "a tool named config": ("@tool\ndef config(self): return 1", "@tool config is reserved"),
    "a shared named ctx": ("@shared\ndef ctx(self): return 1", "@shared ctx is reserved"),
    "a method named code": (
        "def code(self): return 1",
        "Mine: code is reserved by agentrl; rename it, for .* my_code$",
    ),
    "resources in a list": ("resources = ['a']", "resources is reserved"),
    "a property named ctx": ("@property\ndef ctx(self): return 1", "ctx is reserved"),
    "a config that is an object": ("config = EnvConfig()", "config is reserved"),
    "Gymnasium's render": ("def render(self): return None", "render is reserved"),
    "Gymnasium's metadata": ("metadata = {'render_modes': []}", "metadata is reserved"),
    "a tool without self": (
        "@tool\ndef a(first: int): return first",
        "@tool a has first: int as its first parameter: write self before",
    ),
    "a tool of nothing": ("@tool\ndef a(): return 1", "@tool a has nothing as its first parameter: write self"),
    "a shared of the context": ("@shared\ndef a(self, ctx): return 1", r"@shared a is called as a\(\): missing.*'ctx'"),
    "a reward that lost its mark": ("def right(self, ctx): return 1", "right overrides a @reward of a base class"),
    "a tool that lost its mark": ("def look(self): return 1", "look overrides a @tool of a base class"),
    "a slip of respond": ("def response(self, turn, ctx): return None", r"response has no effect\. .*'respond'"),
    "a capital letter": ("def Respond(self, turn, ctx): return None", "Did you mean 'respond'"),
    "a slip of teardown": ("def tear_down(self, ctx): return None", "Did you mean 'teardown'"),
    "a slip of success": ("async def succes(self, ctx): return True", "Did you mean 'success'"),
    "a slip of score": ("def scores(self, ctx): return 1", "Did you mean 'score'"),
    "a slip of oracle": ("def orcale(self, task): return []", "Did you mean 'oracle'"),
    "a slip of canaries": ("def canary(self, task): return {}", "Did you mean 'canaries'"),
    "a slip of preflight": ("def pre_flight(self): return ''", "Did you mean 'preflight'"),
    "a slip of tools": ("def tool(self, ctx): return []", "Did you mean 'tools'"),
    "a static slip": ("@staticmethod\ndef response(turn, ctx): return None", "Did you mean 'respond'"),
    "limits under another name": ("limit = Limits(max_turns=3)", "Did you mean 'limits'"),
    "a config under another name": ("class Settings(EnvConfig):\n  n: int = 3", "Did you mean 'Config'"),
    "a slip of blocking": ("blocks = False", "Did you mean 'blocking'"),
    "score and a reward": (
        "def score(self, ctx): return 1\n@reward\ndef a(self, ctx): return 1",
        "@reward a has no effect because score is defined; remove one",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_in_a_class_is_rejected_when_the_class_is_made(case: str, tmp_path: Path) -> None:
    body, message = REFUSED[case]
    file = tmp_path / "mine.py"
    file.write_text(HEAD + "".join(f" {line}\n" for line in body.split("\n")))
    with pytest.raises(ConfigError, match=rf"mine\.py:\d+: (?s:.)*{message}"):
        resolve(f"{file}:Mine")


ACCEPTED = {
    "a reward that is dropped on purpose": "right = None",
    "a reward decorated again": "@reward(weight=2)\ndef right(self, ctx): return 1",
    "a score instead of inherited rewards": "def score(self, ctx): return 1",
    "a mix-in's reward": "pass\nclass Mix:\n @reward\n def a(self, ctx): return 1\nclass Mine(Mix, Base):\n pass",
    "a mix-in that another class corrects": "pass\nclass Mix:\n tasks = 5\nclass Mine(Base, Mix):\n pass",
    "a tool whose self has another name": "@tool\ndef a(this, first: int): return first",
    "more parameters with defaults": "def setup(self, task, ctx, greeting='hi'): return []",
    "limits that depend on the config": "@property\ndef limits(self): return Limits(max_turns=3)",
    "a helper with the name of a limit": "def max_turns(self): return 3",
    "a shared context manager": "from contextlib import contextmanager\n@shared\n@contextmanager\ndef a(self): yield 1",
    "a helper with a near name": "def _response(self, turn, ctx): return ''",
    "a helper next to the hook that it resembles": "def score(self, ctx): return 1\ndef scores(self, ctx): return 1",
    "a helper that could not be the hook": "def response(self): return ''",
    "a helper of one's own": "def parse(self, ctx): return ''\ndef render_text(self, turn): return ''\nlimit = 3",
    "a config written elsewhere": "class Settings(EnvConfig):\n  n: int = 3\nConfig = Settings",
    "tasks that yield": "def tasks(self, split):\n  yield Task('x')",
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_valid_class_is_accepted(case: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(HEAD + "".join(f" {line}\n" for line in ACCEPTED[case].split("\n")))
    assert resolve(f"{file}:Mine").__name__ == "Mine"


HIDING = {
    "tasks": ([], "sets self.tasks, which is reserved by agentrl; rename it, for example self.my_tasks"),
    "right": (0, "which is a @reward of the class"),
    "look": (0, "which is a @tool of the class"),
    "book": (0, "which is a @shared of the class"),
    "success": (False, "reserved"),
    "teardown": (None, "reserved"),
    "ctx": ({}, "reserved"),
    "config": ({}, "reserved"),
    "code": ("", "reserved"),
    "limits": (9, r"limits is 9; write limits = Limits"),
    "blocking": ("no", "blocking is 'no'"),
    "solved_reward": (0, "solved_reward is 0; write a finite number above 0, or None"),
}
METHODS = ("__init__", "setup", "look", "respond", "right", "teardown")


class Hiding(Echo):
    """Sets an attribute in one of its methods."""

    class Config(EnvConfig):
        method: str
        attribute: str = "tasks"

    def __init__(self, config=None, **options) -> None:
        super().__init__(config, **options)
        self._hide("__init__")

    def _hide(self, method) -> None:
        if method == self.config.method:
            setattr(self, self.config.attribute, HIDING[self.config.attribute][0])

    def setup(self, task, ctx):
        self._hide("setup")
        return super().setup(task, ctx)

    @tool
    def look(self) -> str:
        self._hide("look")
        return ""

    def respond(self, turn, ctx):
        self._hide("respond")
        return super().respond(turn, ctx)

    @reward
    def right(self, ctx):
        self._hide("right")
        return 1.0

    @shared
    def book(self) -> str:
        return "book"

    def teardown(self, ctx):
        self._hide("teardown")


@pytest.mark.parametrize("name", HIDING)
def test_an_attribute_that_hides_what_agentrl_calls_is_rejected_where_it_is_set(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^Hiding \(test_definition\.py:\d+\) .*{HIDING[name][1]}"):
        Hiding(method="__init__", attribute=name)


@pytest.mark.parametrize("method", METHODS)
async def test_every_method_is_rejected_that_hides_what_agentrl_calls(method: str) -> None:
    call = ToolCall(function={"name": "look", "arguments": {}})

    async def episode() -> None:
        driver = EnvDriver(Hiding(method=method))
        await driver.reset(Task("t"))
        await driver.step(Message(role="assistant", content="", tool_calls=[call]))
        for signal in await driver.finish(StopReason.ENV_DONE):
            if signal.reason:
                raise ConfigError(signal.reason)
        await driver.close()

    with pytest.raises(ConfigError, match=r"Hiding \(test_definition\.py:\d+\) sets self\.tasks"):
        await episode()


async def test_an_object_may_set_again_what_it_holds() -> None:
    class Same(Echo):
        def setup(self, task, ctx):
            self.ctx, self.config, self.mine = ctx, self.config, task
            self.limits = Limits(max_turns=7)
            return super().setup(task, ctx)

    driver = EnvDriver(Same())
    await driver.reset(Task("t"))
    assert (driver.env.mine.id, driver.max_turns) == ("t", 7)


def test_setting_an_attribute_takes_less_than_two_microseconds() -> None:
    env = Echo()
    taken = min(timeit.repeat("env.mine = 1", globals={"env": env}, number=10_000, repeat=5))
    assert taken / 10_000 < 2e-6


def test_a_config_is_one_of_the_class_wherever_it_is_set() -> None:
    class Other(EnvConfig):
        pass

    class Settled(Echo):
        class Config(EnvConfig):
            high: int = 3

    class Own(Echo):
        def __init__(self, config=None, **options) -> None:
            super().__init__(config, **options)
            self.config = self.config.model_copy()

    assert EnvDriver(Own()).env.config == Own.Config()
    with pytest.raises(ConfigError, match=r"holds a config of another class \(Other\): make it with Settled\.Config"):
        EnvDriver(Settled(Other()))


def test_an_object_without_its_config_is_rejected_with_an_init_that_works() -> None:
    class Lost(Echo):
        def __init__(self) -> None:
            pass

    @dataclass
    class Data(Echo):
        size: int = 3

    with pytest.raises(ConfigError, match=r"loses its config: write def __init__\(self, config=None, \*\*options\)"):
        EnvDriver(Lost())
    with pytest.raises(ConfigError, match=r"loses its config, because a dataclass replaces __init__"):
        EnvDriver(Data())


def test_a_config_beside_options_or_in_place_of_one_is_rejected() -> None:
    class Sized(Echo):
        class Config(EnvConfig):
            high: int = 3

    class Own(Sized):
        def __init__(self, high: int = 3) -> None:
            super().__init__(high=high)

    with pytest.raises(
        ConfigError,
        match=r"^Own \(test_definition\.py:\d+\) takes the config as high: write def __init__\(self, config=None, ",
    ):
        play(Own(), ["x"])
    with pytest.raises(ConfigError, match="Sized takes a config or options, not both: put high into the config"):
        Sized(Sized.Config(), high=2)


def test_a_class_in_place_of_an_object_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"Echo is not an object of an environment; pass Echo\(\)"):
        play(Echo, ["1"])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"pass Echo\(\)"):
        GymnasiumEnv(Echo)  # type: ignore[arg-type]


async def test_an_environment_object_holds_only_what_an_author_writes() -> None:
    env = Echo()
    assert {name for name in dir(env) if not name.startswith("_")} == {*HOOKS, *SETTINGS, "config", "right"} - {"play"}
    await EnvDriver(env).reset(Task("t"))
    assert vars(env).keys() == {"config", "ctx"}


def test_a_misspelled_abstract_method_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(HEAD.replace("def setup(", "def set_up(") + "    pass\n")
    with pytest.raises(ConfigError, match=r"set_up has no effect\. Did you mean 'setup'\?"):
        resolve(f"{file}:Mine")


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(HEAD + " blocking = 1\n limits = 3\n def step(self, a): return a\n")
    with pytest.raises(ConfigError, match=r"limits is 3(?s:.)*blocking is 1(?s:.)*step belongs to Gymnasium"):
        resolve(f"{file}:Mine")


@pytest.mark.parametrize(
    "limits", [{"max_turns": 2.5}, {"max_turns": "3"}, {"max_turns": True}, {"max_turns": 0}, {"is_timed": 1},
              {"setup_timeout_s": "60"}, {"tool_timeout_s": float("inf")}, {"score_timeout_s": None}],
)  # fmt: skip
def test_limits_of_a_wrong_type_are_rejected(limits: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=rf"Limits\.{next(iter(limits))} is "):
        Limits(**limits)  # type: ignore[arg-type]


def test_an_unknown_limit_gets_the_nearest_known_one() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown field of Limits 'turns'\. Did you mean 'max_turns'\?"):
        Limits(turns=3)  # type: ignore[call-arg]
    assert pickle.loads(pickle.dumps(replace(Limits(2), is_timed=True))) == Limits(max_turns=2, is_timed=True)


def test_rejecting_a_class_imports_nothing_heavy(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(HEAD + " limits = 3\n")
    code = (
        "import sys\nfrom agentrl.cli.main import main\ncode = main()\n"
        "print(code, {'torch', 'ray', 'vllm', 'deepspeed', 'transformers'} & sys.modules.keys())"
    )
    words = [sys.executable, "-c", code, "train", "--env", f"{file}:Mine"]
    answer = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert answer.stdout.splitlines()[-1] == "2 set()"
    assert "limits is 3" in answer.stderr
