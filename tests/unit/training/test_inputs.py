"""What a run is about is checked before anything heavy starts: the environment is asked, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from tempfile import mkdtemp

import pytest

from agentrl.algorithms import GRPO
from agentrl.config.embedded import EMBEDDED
from agentrl.config.machine import detect
from agentrl.config.resolve import resolve_run
from agentrl.config.schema import Config
from agentrl.config.toml import to_toml
from agentrl.env import resolve
from agentrl.env.dry_run import process
from agentrl.env.dry_run.verdict import DryRunRequest, DryRunResult
from agentrl.errors import ConfigError, RunError
from agentrl.hosting import inspection
from agentrl.records.folder import RunFolder, check_free, existing_run
from agentrl.records.manifest import PluginSource, plugin_source
from agentrl.reward_models import keys
from agentrl.training import launch
from agentrl.training.inputs import RunInputs, algorithm_of, anchored, check_other_models, check_settings
from tests.tiny import tiny_model

MUON: dict[str, object] = {"optimizer": "muon"}
LORA: dict[str, dict[str, object]] = {"lora": {"rank": 8}}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"algorithm": {"name": "grop"}}, "unknown algorithm 'grop'. Did you mean 'grpo'?"),
        (
            {"rollout": {"group_size": 1}},
            "grpo compares at least 2 episodes per task: raise rollout.group_size",
        ),
        ({"algorithm": {"name": "distillation"}}, "distillation learns from a teacher: set algorithm.teacher"),
        ({"critic": {"warmup_steps": 2}}, "critic.warmup_steps has no effect without an algorithm with a critic"),
        ({**LORA, "learner": MUON | {"beta1": 0.8}}, "learner.beta1 has no effect without learner.optimizer adamw"),
        ({**LORA, "learner": MUON | {"beta2": 0.9}}, "learner.beta2 has no effect without learner.optimizer adamw"),
        (
            {"scorers": {"placement": "separate"}},
            "scorers.placement separate has no effect: algorithm grpo has neither",
        ),
        (
            {"scorers": {"placement": "separate"}, "algorithm": {"kl_coef": 0.1}, "lora": {"rank": 8}},
            "scorers.placement separate has no effect: algorithm grpo has neither",
        ),
        (
            {"scorers": {"placement": "separate"}, "algorithm": {"kl_coef": 0.1, "reference_every": 2}},
            "scorers.placement separate does not work with algorithm.reference_every",
        ),
        ({"scorers": {"offload": True}}, "scorers.offload has no effect: the learner's GPUs hold neither"),
        (
            {"scorers": {"offload": True, "placement": "separate"}, "algorithm": {"kl_coef": 0.1}},
            "scorers.offload has no effect",
        ),
        (
            {"scorers": {"offload": True}, "algorithm": {"name": "ppo"}, "learner": {"zero_stage": 3}},
            "scorers.offload does not work with a critic at ZeRO stage 3",
        ),
        (
            {
                "scorers": {"offload": True},
                "algorithm": {"name": "ppo"},
                "learner": {"zero_stage": 1, "offload": True},
            },
            "scorers.offload has no effect",
        ),
        (
            {"rollout": {"max_tokens": 24}, "algorithm": {"overlong_penalty": 1.0, "overlong_buffer": 25}},
            "algorithm.overlong_buffer 25 is longer than a turn of rollout.max_tokens 24",
        ),
        ({"algorithm": {"teacher": "owner/name"}}, "algorithm.teacher has no effect without an algorithm that has one"),
        ({"algorithm": {"clip_lo": 1}}, "unknown key of GRPO 'algorithm.clip_lo'. Did you mean 'algorithm.clip_low'?"),
        ({"algorithm": {"clip_low": 1.5}}, "GRPO: algorithm.clip_low must be less than or equal to 1, got 1.5"),
    ],
)
def test_an_algorithm_that_the_run_cannot_use_is_refused(config: dict[str, dict[str, object]], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        algorithm_of(Config.model_validate(config))


@pytest.mark.parametrize(
    "config",
    [
        {"learner": {"beta1": 0.8}, "lora": {"rank": 8}},
        {"learner": MUON | {"beta1": 0.8}},
        {**LORA, "learner": MUON | {"beta1": 0.8, "beta2": 0.9}, "algorithm": {"name": "ppo"}},
    ],
)
def test_the_moments_of_adamw_may_be_set_where_it_trains_a_parameter(config: dict[str, dict[str, object]]) -> None:
    assert algorithm_of(Config.model_validate(config))


@pytest.mark.parametrize(
    "config",
    [
        {"algorithm": {"kl_coef": 0.1}},
        {"algorithm": {"kl_coef": 0.1, "reference_every": 2}, "lora": {"rank": 8}},
        {"algorithm": {"name": "ppo"}, "learner": {"zero_stage": 3}, "critic": {"zero_stage": 2}},
        {"algorithm": {"name": "ppo", "kl_coef": 0.1}, "scorers": {"offload": True, "placement": "separate"}},
    ],
)
def test_scorers_that_wait_on_a_gpu_may_be_offloaded(config: dict[str, dict[str, object]]) -> None:
    assert algorithm_of(Config.model_validate({"scorers": {"offload": True}, **config}))


HEAD = """
import asyncio, os, random, sys, time; SEEN, COUNT = [], 0
from pathlib import Path
from agentrl.env import AgentEnv, Context, Env, EnvConfig, Limits, Message, Reply, Task, reward, tool

class Whole(Env):
    def tasks(self, split):
        return [Task(f"{split}-{n}", n) for n in range(3)]
    def setup(self, task, ctx):
        return [Message(role="user", content="?")]
    @reward
    def right(self, ctx):
        return float(ctx.text == "yes")

class Bare(Env):
    def tasks(self, split):
        return [Task(f"{split}-{n}", n) for n in range(3)]
    def setup(self, task, ctx):
        return [Message(role="user", content="?")]

"""
Check = Callable[..., RunInputs]


@pytest.fixture
def check(apart: Check, monkeypatch: pytest.MonkeyPatch) -> Check:
    """The same, with the dry run in this process: a second less for each."""

    def dry_run(request: DryRunRequest) -> DryRunResult:
        result = asyncio.run(process.verdict(request))
        if result.fault:
            raise ConfigError(result.fault)
        return result

    monkeypatch.setattr(inspection, "dry_run", dry_run)
    return apart


@pytest.fixture
def apart(tmp_path: Path) -> Check:
    """The inputs of a run in an environment whose class has this body."""

    def one(body: str, base: str = "Whole", **sections: dict[str, object]) -> RunInputs:
        folder = Path(mkdtemp(dir=tmp_path))
        (folder / "mine.py").write_text(f"{HEAD}class Mine({base}):\n" + "".join(f" {x}\n" for x in body.split("\n")))
        env = {"name": f"{folder / 'mine.py'}:Mine", **sections.pop("env", {})}
        return RunInputs.of(Config.model_validate({"env": env, "model": {"name": EMBEDDED}, **sections}))

    return one


REFUSED = {
    "no reward": ("pass", "Bare", "nothing to learn from: write a @reward method"),
    "rewards of weight 0": ("@reward(weight=0)\ndef a(self, ctx): return 1", "Bare", "every reward has weight 0"),
    "tools and one turn": ("@tool\ndef a(self): return 1", "Whole", r"one turn.*Limits\(max_turns=8\)"),
    "no tasks": ("def tasks(self, split): return []", "Whole", r"tasks\('train'\) is empty"),
    "no held-out tasks": (
        "def tasks(self, split): return [Task('a')] if split == 'train' else []", "Whole",
        r"tasks\('test'\) is empty.*--eval.tasks 0",
    ),
    "tasks that raise": (
        "def tasks(self, split): return open('none.jsonl')", "Whole", r"FileNotFoundError.*mine\.py:22",
    ),
    "tasks in a dict": (
        "def tasks(self, split): return {'a': Task('a')}", "Whole", r"^Mine \(mine\.py:22\): tasks\(\) returned a dict"
    ),
    "tasks that are rows": (
        "def tasks(self, split): return [{'q': 1}]", "Whole",
        r"^Mine \(mine\.py:22\): task 0 of split 'train' is a dict; give agentrl.env.Task",
    ),
    "ids that are numbers": ("def tasks(self, split): return [Task(1)]", "Whole", "has the id 1; give text"),
    "tasks by chance": (
        "def tasks(self, split): return [Task(str(random.random())) for _ in range(3)]", "Whole",
        "when it is read again",
    ),
    "a tool of odd arguments": (
        "limits = Limits(max_turns=2)\n@tool\ndef a(self, x): return 1", "Whole", "no annotation",
    ),
    "a role of others": (
        "def setup(self, task, ctx): return [{'role': 'human', 'content': ''}]", "Whole",
        r"Mine\.setup returned a message with the role 'human'\. Did you mean 'user'\? Known: assistant, system",
    ),
    "text for messages": (
        "def setup(self, task, ctx): return 'Say yes.'", "Whole", "returned 'Say yes.'; return a list",
    ),
    "one message for many": (
        "def setup(self, task, ctx): return {'role': 'user', 'content': ''}", "Whole", "return a list",
    ),
    "no content": ("def setup(self, task, ctx): return [{'role': 'user'}]", "Whole", "give it a role, and text"),
    "no message": ("def setup(self, task, ctx): return []", "Whole", "returned no message"),
    "nothing": ("def setup(self, task, ctx): pass", "Whole", "setup returned None"),
    "a reply that is done by text": (
        "def respond(self, turn, ctx): return Reply((), done='no')", "Whole", r"done is True or False",
    ),
    "messages that respond removes": (
        "def respond(self, turn, ctx): return Reply(ctx.messages.pop())", "Whole", "'tuple' object has no",
    ),
    "respond without a reply": ("def respond(self, turn, ctx): return 'No.'", "Whole", r"return a Reply: Reply\.say"),
    "a reply of a wrong role": (
        "def respond(self, turn, ctx): return Reply(({'role': 'env', 'content': ''},))", "Whole", "the role 'env'",
    ),
    "a reply as the assistant": (
        "def respond(self, turn, ctx): return Reply(({'role': 'assistant', 'content': 'Yes.'},), done=False)", "Whole",
        r"Mine\.respond returned a message with the role 'assistant'; after setup only the model speaks",
    ),
    "tools that are nothing": ("def tools(self, ctx): return None", "Whole", "tools returned None; return a list"),
    "a reward of nothing": ("@reward\ndef a(self, ctx): pass", "Whole", r"Mine\.a has no value.*returned None"),
    "a reward of text": ("@reward\ndef a(self, ctx): return '1'", "Whole", "returned '1'; return a number"),
    "a reward of nan": ("@reward\ndef a(self, ctx): return float('nan')", "Whole", "the value is nan"),
    "a reward that trusts the model": (
        "@reward\ndef a(self, ctx): return float(ctx.text.split()[-1])", "Whole", r"IndexError.*mine\.py:23",
    ),
    "a group reward of one": (
        "@reward(scope='group')\ndef a(self, episodes): return 1.0", "Whole", "one value for each",
    ),
    "a constructor of its own": ("def __init__(self): pass", "Whole", r"cannot be made: TypeError.*\(mine\.py:22\)$"),
    "lent tools and one turn": (
        "class Handy:\n @tool\n def count(self): return 1\ndef tools(self, ctx): return [self.Handy()]", "Whole",
        r"limits leave one turn.*its tools \(count\) return",
    ),
    "parts that are text": (
        "def setup(self, task, ctx): return [{'role': 'user', 'content': ['x', 'y']}]", "Whole",
        r"Mine\.setup returned the message .*'y'.*; a content part has a type, as in \{'type': 'text', 'text': …\}",
    ),
    "parts of another type": (
        "def setup(self, task, ctx): return [{'role': 'user', 'content': [{'type': 'image_url'}]}]", "Whole",
        r"Mine\.setup returned the message .*; parts of the type 'image_url' are not supported, only those of text",
    ),
    "parts without words": (
        "def setup(self, task, ctx): return [{'role': 'user', 'content': [{'type': 'text'}]}]", "Whole", "has a type",
    ),
    "a tool of odd annotations": (
        "limits = Limits(max_turns=2)\n@tool\ndef a(self, x: random.Random): return 1", "Whole",
        r"@tool Mine\.a: annotate with a type that JSON can represent, such as .* or list\[str\] \([^\n]*Random'>\)$",
    ),
    "an exit at once": ("def preflight(self): os._exit(0)", "Whole", "cannot run here: .*SystemExit: 0"),
    "an exit when made": ("def __init__(self, config): os._exit(0)", "Whole", "cannot be made: .*SystemExit: 0"),
    "limits that raise": (
        "@property\ndef limits(self): return {}['n']", "Whole", r"Mine cannot be made: KeyError: 'n' \(mine\.py:23\)",
    ),
    "an exit when it is read": ("os._exit(0)", "Whole", r"mine\.py:22: SystemExit: 0$"),
    "a default out of bounds": (
        "class Config(EnvConfig):\n high: int = __import__('pydantic').Field(2, ge=4)", "Whole",
        "env.high.*greater than or equal to 4",
    ),
    "an exit": (
        "def setup(self, task, ctx): sys.exit('bye')", "Whole", r"Mine\.setup raised SystemExit: bye \(mine\.py:22\)",
    ),
    "a context of its own": (
        "def __init__(self, config): super().__init__(config); self.ctx = {}", "Whole",
        r"^Mine \(mine\.py:22\) sets self\.ctx, which is reserved by agentrl; rename it",
    ),
    "two rewards of one name": (
        "@reward\ndef a(self, ctx): return 1\n@reward\ndef a(self, ctx): return 2", "Whole",
        r"^Mine\.a \(mine\.py:25\) is defined twice, and Python keeps only the last definition: rename one$",
    ),
    "an error after several calls of an agent": (
        "async def play(self, task, ctx, model):\n for _ in range(3): await model.ask('?')\n return {}['end']",
        "AgentEnv, Whole", r"Mine\.play raised KeyError: 'end' \(mine\.py:24\)",
    ),
    "a need of the machine": ("def preflight(self): raise OSError('no shelf')", "Whole", "cannot run here: .*no shelf"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_is_refused_before_anything_starts(case: str, check: Check) -> None:
    body, base, said = REFUSED[case]
    with pytest.raises(ConfigError, match=f"(?s){said}"):
        check(body, base)


OF_SILENCE = {
    "a last word": "@reward\ndef a(self, ctx): return float(ctx.text.split()[-1])",
    "a JSON answer": "@reward\ndef a(self, ctx):\n import json\n return json.loads(ctx.text)['answer']",
    "an oracle's form alone": (
        "@reward\ndef a(self, ctx): return {'(yes)': 1}[ctx.text]\ndef oracle(self, task): return ['(yes)']"
    ),
    "a group's mean": (
        "@reward(scope='group')\ndef a(self, episodes): return [1 / len(e.messages[-1]['content']) for e in episodes]"
    ),
    "a turn": "@reward(scope='turn')\ndef a(self, ctx): return 1 / len(ctx.text)",
    "success": "def success(self, ctx): return True if ctx.text else None",
}
OF_EVERY_ANSWER = {
    "a name": ("@reward\ndef a(self, ctx): return ctx.texts == 'yes'", "AttributeError"),
    "a key": ("@reward\ndef a(self, ctx): return {}['gold'] == ctx.text", r"KeyError: 'gold' \(mine\.py:23\)"),
    "nothing": ("@reward\ndef a(self, ctx): pass", "returned None; return a number"),
    "what nobody awaits": (
        "async def b(self): return 1.0\n@reward\ndef a(self, ctx): return 2 * self.b()", "TypeError.*'coroutine'",
    ),
    "one value for a group": (
        "@reward(scope='group')\ndef a(self, episodes): return [1.0]", r"returned \[1\.0\]; return one value for each",
    ),
    "a number for success": ("def success(self, ctx): return 1.0", r"success.*returned 1\.0; return True or False"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("case", OF_EVERY_ANSWER)
def test_a_reward_that_no_answer_can_earn_is_told_in_its_own_words(case: str, check: Check) -> None:
    body, said = OF_EVERY_ANSWER[case]
    with pytest.raises(ConfigError, match=f"(?s){said}") as caught:
        check(body)
    assert "has no value: " in str(caught.value)
    assert "return 0" not in str(caught.value)


@pytest.mark.parametrize("case", OF_SILENCE)
def test_a_reward_that_only_silence_breaks_is_to_return_0(case: str, check: Check) -> None:
    worth = "False" if case == "success" else "0"
    with pytest.raises(
        ConfigError, match=rf"no value for an empty answer: (?s:.*)rewards a failing model: return {worth}\b"
    ):
        check(OF_SILENCE[case])


def test_an_environment_that_ends_its_process_is_refused(apart: Check) -> None:
    with pytest.raises(ConfigError, match="ended its process with code 3"):
        apart("def setup(self, task, ctx): os._exit(3)")


@pytest.mark.timeout(120)
def test_an_agent_that_blocks_the_event_loop_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text("import time\n\nasync def agent(task, ctx, model):\n    time.sleep(60)\n")
    (tmp_path / "rows.jsonl").write_text('{"prompt": "2 + 2?", "label": "4"}\n')
    data = {key: str(tmp_path / "rows.jsonl") for key in ("data", "data_heldout")}
    with pytest.raises(ConfigError, match=r"blocked for \d+ s by agent \(stuck\.py:4\): .*write a plain def"):
        process.dry_run(DryRunRequest(str(tmp_path / "stuck.py"), data, ["train"]))


def test_a_dry_run_may_print_more_than_a_pipe_holds(apart: Check) -> None:
    [said] = apart(
        "def setup(self, task, ctx): return [Message(role='user', content='word ' * 60_000)]"
    ).notice.splitlines()
    assert "leaves 0 of model.max_context 1024" in said


def test_a_dry_run_in_its_own_process_finds_the_same(apart: Check) -> None:
    with pytest.raises(ConfigError, match="the role 'human'"):
        apart("def setup(self, task, ctx): print('hello'); return [{'role': 'human', 'content': ''}]")
    assert apart("def preflight(self): return 'Here.'").notice == "Here."


def test_an_error_comes_with_the_traceback_of_the_authors_code(check: Check) -> None:
    with pytest.raises(ConfigError) as caught:
        check("def setup(self, task, ctx): return {}[task.id]")
    text = str(caught.value)
    assert text.startswith("Mine.setup raised KeyError: 'train-0' (mine.py:22)\n\nTraceback (most recent call last):")
    assert "agentrl/env" not in text


CALLS = """
limits = Limits(max_turns=8)
async def play(self, task, ctx, model):
 for _ in range(3):
  await model.ask("?")
 return {}
@reward
def right(self, ctx): return float("final" in ctx.result)
""".strip()
"""An agent that always makes three calls."""
ACCEPTED = {
    "an agent of several calls": (CALLS, "AgentEnv, Bare"),
    "score in the place of rewards": ("def score(self, ctx): return 1.0", "Bare"),
    "turn rewards alone": ("@reward(scope='turn')\ndef a(self, ctx): return 1", "Bare"),
    "group rewards alone": ("@reward(scope='group')\ndef a(self, episodes): return [1.0 for _ in episodes]", "Bare"),
    "a reward of numpy's": ("@reward\ndef a(self, ctx):\n import numpy\n return numpy.float32(1)", "Bare"),
    "group rewards of numpy's": (
        "@reward(scope='group')\ndef a(self, episodes):\n import numpy\n return numpy.ones(len(episodes))", "Bare",
    ),
    "a truth": ("@reward\ndef a(self, ctx): return True", "Bare"),
    "chance of its own": (
        "def setup(self, task, ctx): return [Message(role='user', content=str(ctx.rng.random()))]", "Whole",
    ),
    "a table that nobody changes": ("words = {'a': [1]}", "Whole"),
    "a long prompt that fits": (
        "def setup(self, task, ctx): return [Message(role='user', content='What is it? ' * 200)]", "Whole",
    ),
    "endless tasks that come again": (
        "def tasks(self, split): return lambda rng: Task(f'{split}-{rng.randrange(3)}')", "Whole",
    ),
    "a respond that ends the only turn": ("def respond(self, turn, ctx): return Reply.end()", "Whole"),
    "a respond with turns": (
        "limits = Limits(max_turns=3)\ndef respond(self, turn, ctx): return Reply.say('No.')", "Whole",
    ),
    "examples by the assistant": (
        "def setup(self, task, ctx):\n"
        " return [*super().setup(task, ctx), Message(role='assistant', content='x'), *super().setup(task, ctx)]",
        "Whole",
    ),
    "a property with a setter": (
        "@property\ndef a(self): return 1\n@a.setter\ndef a(self, value): pass\ndef b(self): return 2", "Whole",
    ),
    "a config that it sets itself": ("def __init__(self, config): self.config = config", "Whole"),
    "lent no tools": ("def tools(self, ctx): return []", "Whole"),
    "typed parts": (
        "def setup(self, task, ctx): return [{'role': 'user', 'content': [{'type': 'text', 'text': '?'}]}]", "Whole",
    ),
    "an env that prints": ("def setup(self, task, ctx): print('hello'); return super().setup(task, ctx)", "Whole"),
    "an async env": ("async def setup(self, task, ctx): return [Message(role='user', content='')]", "Whole"),
}  # fmt: skip


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_can_run_is_accepted(case: str, check: Check) -> None:
    assert check(*ACCEPTED[case]).notice == ""


NOTES = {
    "held-out tasks that are trained on": (
        "def tasks(self, split): return [Task('a'), Task('b')]",
        "2 of 2 held-out tasks are training tasks too, so their scores are not held out: 'a', 'b'",
    ),
    "a tool that nobody describes": (
        "limits = Limits(max_turns=2)\n@tool\ndef a(self): return 1", "no description of a: write a docstring",
    ),
    "a docstring of another parameter": (
        "limits = Limits(max_turns=2)\n@tool\ndef a(self, n: int):\n 'Count.\\n\\nArgs:\\n  m: a number'\n return 1",
        "The docstring of a describes m, which a does not take.",
    ),
    "no signal for silence": ("def score(self, ctx): return ()", "gave no signal for an empty answer"),
    "a service that is away": (
        "def setup(self, task, ctx):\n e = OSError('search is down')\n e.fault = 'infra'\n raise e",
        "failed, but not because of the environment: OSError: search is down",
    ),
    "state that all episodes share": (
        "seen = []\ndef setup(self, task, ctx):\n self.seen.append(task.id)\n return super().setup(task, ctx)",
        "Mine.seen changed during an episode but is shared by all episodes of a worker; use ctx.state.",
    ),
    "a module's state that all episodes share": (
        "def setup(self, task, ctx):\n SEEN.append(task.id)\n return super().setup(task, ctx)",
        "SEEN (mine.py) changed during an episode but is shared by all episodes of a worker; use ctx.state.",
    ),
    "a module's counter": (
        "def setup(self, task, ctx):\n global COUNT\n COUNT += 1\n return super().setup(task, ctx)",
        "COUNT (mine.py) changed during an episode",
    ),
    "an array of the class": (
        "grid = __import__('numpy').zeros(5000)\ndef setup(self, task, ctx):\n self.grid[2500] += 1\n"
        " return super().setup(task, ctx)",
        "Mine.grid changed during an episode",
    ),
    "a counter of the class": (
        "count = 0\ndef teardown(self, ctx):\n Mine.count += 1", "Mine.count changed during an episode",
    ),
    "tasks that share an id": (
        "def tasks(self, split): return [Task(f'{split}-{n // 2}', n) for n in range(5)]",
        "4 of 5 tasks of 'train' share an id with another, for example 'train-0': give each its own",
    ),
    "endless tasks of one id": (
        "def tasks(self, split): return lambda rng: Task(split, rng.random())",
        "tasks of 'train' share an id with another, for example 'train'",
    ),
    "a conversation that the assistant begins": (
        "def setup(self, task, ctx):\n"
        " return [Message(role='assistant', content='Hi.'), *super().setup(task, ctx)]",
        "Mine.setup begins with the assistant, which many chat templates reject: begin with 'system' or 'user'.",
    ),
    "a conversation that the assistant ends": (
        "def setup(self, task, ctx):\n"
        " return [*super().setup(task, ctx), Message(role='assistant', content='Well,')]",
        "Mine.setup ends with the assistant, so the model would answer itself: end with 'user'.",
    ),
    "an assistant that says nothing": (
        "def setup(self, task, ctx): return [Message(role='assistant', content='')]", "ends with the assistant",
    ),
    "a reply that nobody reads": (
        "def respond(self, turn, ctx): return Reply.say('No. Again.')",
        "Mine.respond continues after the only turn, so the model never reads it: write limits = Limits(",
    ),
    "a prompt beyond the context": (
        "def setup(self, task, ctx): return [Message(role='user', content='What is it? ' * 1000)]",
        "tokens, which leaves 0 of model.max_context 1024 for an answer of up to 1 (rollout.max_tokens): raise",
    ),
    "chance that no seed governs": (
        "def setup(self, task, ctx): return [Message(role='user', content=str(random.random()))]",
        "The same seed gave an episode with other messages: draw only from ctx.rng.",
    ),
    "data by chance": (
        "def tasks(self, split): return [Task(split, [1, random.random()])]",
        "When it is read again, task 0 of 'train' has other data (data[1]: 0.",
    ),
    "rewards by chance": (
        "@reward\ndef luck(self, ctx): return random.random()",
        "The same seed gave the same messages other rewards ([('luck', None)]: 0.",
    ),
    "turn rewards by chance": (
        "limits = Limits(max_turns=2)\n"
        "def respond(self, turn, ctx): return Reply.say('More.')\n"
        "@reward(scope='turn')\ndef luck(self, ctx): return random.random() if len(ctx.turns) == 1 else 0.0",
        "The same seed gave the same messages other rewards ([('luck', 0)]: 0.",
    ),
    "a loop that stands still": (
        "async def setup(self, task, ctx):\n time.sleep(1.2)\n return super().setup(task, ctx)",
        "blocked the event loop for 1.",
    ),
    "what it found": ("def preflight(self): return 'On the third shelf.'", "On the third shelf."),
}  # fmt: skip


@pytest.mark.parametrize("case", NOTES)
def test_what_a_user_should_know_is_told(case: str, check: Check) -> None:
    body, said = NOTES[case]
    assert said in check(body).notice


def rewarded_by(**keys: object) -> dict[str, object]:
    return {"models": [{"name": "rm", **keys}]}


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server that refuses every request."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def test_with_a_reward_model_an_environment_needs_no_rewards_of_its_own(check: Check, server: str) -> None:
    assert check("pass", "Bare", reward=rewarded_by(url=f"{server}/get_reward")).notice == ""


def test_a_reward_model_whose_servers_are_all_away_is_refused(
    check: Check, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "STARTING_S", 0.0)
    away = "http://127.0.0.1:9/get_reward"
    with pytest.raises(ConfigError, match=rf"reward model rm: no connection to {away} .*Start its server"):
        check("pass", reward=rewarded_by(url=away))
    assert check("pass", reward=rewarded_by(url=f"{away},{server}/get_reward")).notice == ""


def test_what_is_no_reward_model_is_refused_and_so_is_a_token_that_is_not_set(check: Check) -> None:
    with pytest.raises(
        ConfigError, match=r"is a LlamaForCausalLM; a reward model is saved as a \.\.\.ForSequenceClassif"
    ):
        check("pass", reward=rewarded_by(model=EMBEDDED))
    with pytest.raises(ConfigError, match=r"'\./none': there is no such folder"):
        check("pass", reward=rewarded_by(model="./none"))
    with pytest.raises(ConfigError, match="judge rm: its prompt has no"):
        check("pass", reward=rewarded_by(url="http://127.0.0.1:5000", judge="qwen", prompt="Judge it."))
    with pytest.raises(ConfigError, match="the environment variable NO_SUCH_TOKEN is not set"):
        check("pass", reward=rewarded_by(url="http://127.0.0.1:5000", token_env="NO_SUCH_TOKEN"))


def test_where_nothing_is_evaluated_no_held_out_task_is_asked_for(check: Check) -> None:
    only_train = "def tasks(self, split): return {'train': [Task('a')]}[split]"
    assert check(only_train, eval={"tasks": 0}).notice == ""
    with pytest.raises(ConfigError, match="KeyError: 'test'"):
        check(only_train)


def test_one_turn_by_a_flag_is_refused_too(check: Check) -> None:
    body = "limits = Limits(max_turns=4)\n@tool\ndef a(self):\n '''Look.'''\n return 1"
    assert check(body).notice == ""
    with pytest.raises(ConfigError, match=r"--rollout\.max_turns 1 leaves one turn"):
        check(body, rollout={"max_turns": 1})


def test_an_environment_that_takes_long_is_left_to_the_run(apart: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PATIENCE_S", 0.5)
    assert "longer than 0.5 s" in apart("def tasks(self, split): time.sleep(600)").notice


def test_paths_hold_wherever_a_resume_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "rows.jsonl").touch()
    (tmp_path / "easy").mkdir()
    options = {"data": "rows.jsonl", "level": "easy", "files": ["./rows.jsonl"], "n": 3, "missing": "./none"}
    options["more"] = {"file": "./rows.jsonl", "prompt": "Solve it. " * 40 + "a/b"}
    models = [{"name": "a", "model": "model"}, {"name": "b", "model": "owner/name"}, {"name": "c", "url": "http://x"}]
    given = {"out": "runs/x", "env": {"name": "./x.py:A", **options}, "model": {"name": "model"}}
    given["reward"] = {"models": models}
    given |= {"critic": {"model": "model"}, "algorithm": {"name": "distillation", "teacher": "model"}}
    config = anchored(Config.model_validate(given))
    assert config.env[0].name == f"{tmp_path}/x.py:A"
    rows = f"{tmp_path}/rows.jsonl"
    assert config.env[0].options == options | {"data": rows, "files": [rows], "more": options["more"] | {"file": rows}}
    assert (config.critic.model, config.algorithm.options) == (f"{tmp_path}/model", {"teacher": f"{tmp_path}/model"})
    assert (config.model.name, config.out) == (f"{tmp_path}/model", tmp_path / "runs/x")
    assert [keys.model for keys in config.reward.models] == [f"{tmp_path}/model", "owner/name", None]
    named = Config.model_validate({"env": {"name": "math"}, "model": {"name": "owner/name"}})
    assert anchored(named) == named


def test_a_critic_that_reads_other_tokens_than_the_policy_is_refused(tmp_path: Path) -> None:
    model, critic = tiny_model(tmp_path / "model"), tiny_model(tmp_path / "critic")
    config = Config.model_validate({"algorithm": {"name": "ppo"}, "critic": {"model": str(critic)}})
    check_other_models(config, model)
    tokenizer = json.loads((critic / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    vocab["Ġa"], vocab["Ġb"] = vocab["Ġb"], vocab["Ġa"]
    (critic / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ConfigError, match=f"critic {critic} .* different vocabularies"):
        check_other_models(config, model)


def test_a_policy_that_computes_otherwise_beside_longer_sequences_is_refused(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "model")
    described = json.loads((model / "config.json").read_text())
    described["rope_parameters"] = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 128}
    (model / "config.json").write_text(json.dumps(described))
    config = Config.model_validate({"env": {"name": "guess"}, "model": {"name": str(model), "max_context": 256}})
    with pytest.raises(ConfigError, match=r"model.max_context is 256, .* rotary embeddings of type dynamic"):
        RunInputs.of(config)


@pytest.mark.parametrize("kind", ["falcon", "mpt", "llama4_text"])
def test_a_policy_with_an_attention_of_its_own_is_refused_by_a_run_and_by_a_plan(kind: str, tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "model")
    described = json.loads((model / "config.json").read_text()) | {"model_type": kind}
    (model / "config.json").write_text(json.dumps(described))
    config = Config.model_validate({"env": {"name": "guess"}, "model": {"name": str(model), "max_context": 256}})
    refused = rf"\({kind}\) has an architecture agentrl does not train yet.* Set model.name to another model"
    for check in (RunInputs.of, check_settings):
        with pytest.raises(ConfigError, match=refused):
            check(config)
    RunInputs.of(config, "held_out")  # an evaluation trains nothing


def test_a_teacher_with_an_attention_of_its_own_is_refused_by_its_key(tmp_path: Path) -> None:
    model, teacher = tiny_model(tmp_path / "model"), tiny_model(tmp_path / "teacher")
    described = json.loads((teacher / "config.json").read_text()) | {"model_type": "falcon"}
    (teacher / "config.json").write_text(json.dumps(described))
    algorithm = {"name": "distillation", "teacher": str(teacher)}
    config = Config.model_validate({"algorithm": algorithm, "model": {"name": str(model), "max_context": 256}})
    for check in (partial(check_other_models, model=model), check_settings):
        with pytest.raises(ConfigError, match=r"\(falcon\) .* Set algorithm.teacher to another model"):
            check(config)


WORDS = (["--env", "guess", "--env.hgih", "3"], ["--env", "./none.py"], ["--env", "ges"], ["bare.py:Bare"])


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_a_refusal_loads_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text(HEAD)
    code = (
        "import sys\nfrom agentrl.cli.main import main\ncode = main()\n"
        "print(code, {'torch', 'ray', 'vllm', 'deepspeed', 'transformers'} & sys.modules.keys())"
    )
    command = [sys.executable, "-c", code, "train", *words]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert answer.stdout == "2 set()\n"


SLOW = (
    HEAD
    + """
class Slow(Whole):
    def setup(self, task, ctx):
        Path("ready").touch()
        time.sleep(600)
"""
)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_during_the_check_ends_the_command_with_a_line(
    number: signal.Signals, status: int, tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from agentrl.cli.main import main\nsys.exit(main())"
    )
    command = [sys.executable, "-c", code, "train", "slow.py:Slow", "--model", EMBEDDED]
    run = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    while not (tmp_path / "ready").exists() and run.poll() is None:
        time.sleep(0.01)
    (os.killpg if number is signal.SIGINT else os.kill)(run.pid, number)
    out, _ = run.communicate(timeout=60)
    assert (run.returncode, out) == (status, f"stopped by {number.name}\n")


BAD_OUT = {
    "a file": ("file", "cannot write .*/file: Not a directory; choose another --out"),
    "below a file": ("file/run", "cannot write .*/file/run: Not a directory; choose another --out"),
    "a run": ("run", "run contains a run already: continue it with `agentrl resume run`, or choose another --out"),
    "no folder of files": ("/proc/none/run", "cannot write /proc/none/run: No such file or directory"),
}


@pytest.mark.parametrize("command", [["train", "whole.py:Whole"], ["eval", "--env", "whole.py:Whole"]], ids=" ".join)
@pytest.mark.parametrize("case", BAD_OUT)
def test_a_bad_out_is_refused_before_anything_is_asked_or_loaded(case: str, command: list[str], tmp_path: Path) -> None:
    (tmp_path / "whole.py").write_text(
        HEAD.replace("    def setup", "    def preflight(self): sys.exit(9)\n    def setup")
    )
    (tmp_path / "file").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.toml").touch()
    out, said = BAD_OUT[case]
    before = sorted(tmp_path.rglob("*"))
    code = (
        "import sys\nfrom agentrl.cli.main import main\ncode = main()\n"
        "print(code, {'torch', 'ray', 'vllm', 'deepspeed', 'transformers'} & sys.modules.keys())"
    )
    words = [sys.executable, "-c", code, *command, "--out", out]
    answer = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert answer.stdout == "2 set()\n"
    assert re.search(said, answer.stderr)
    assert [path for path in sorted(tmp_path.rglob("*")) if "__pycache__" not in path.parts] == before


def test_a_curriculum_of_endless_tasks_is_refused(apart: Check) -> None:
    endless = "def tasks(self, split): return lambda random: Task(str(random.random()))"
    with pytest.raises(ConfigError, match="the tasks are endless, so that none comes again: set"):
        apart(endless, rollout={"curriculum": "solve_rate"})
    assert apart(endless)
    assert apart("pass", rollout={"curriculum": "solve_rate"})


WITHOUT_WEIGHT = (
    "import sys\nfrom agentrl.cli.main import main\n"
    "class Stop:\n"
    "    def find_spec(self, name, path=None, target=None):\n"
    "        if name in ('torch', 'ray', 'transformers', 'agentrl.training.loop'): sys.exit(7)\n"
    "sys.meta_path.insert(0, Stop())\nmain()"
)
"""The command in a process that ends with 7 as soon as anything heavy is imported."""


def test_what_the_check_found_is_told_before_anything_heavy_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        HEAD.replace("    def setup", "    def preflight(self): return 'On the third shelf.\\x1b[31m'\n    def setup")
    )
    for command in (["train", "mine.py:Whole"], ["eval", "--env", "mine.py:Whole"]):
        words = [sys.executable, "-c", WITHOUT_WEIGHT, *command, "--model", EMBEDDED]
        answer = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=tmp_path)
        assert answer.returncode == 7, answer.stderr
        assert answer.stdout.endswith("On the third shelf.␛[31m\n")


def test_a_resume_tells_what_has_changed_before_anything_heavy_is_loaded(tmp_path: Path) -> None:
    source, run = tmp_path / "mine.py", RunFolder(tmp_path / "run")
    source.write_text(HEAD)
    config = Config.model_validate({"env": {"name": f"{source}:Whole"}, "model": {"name": EMBEDDED}, "out": run.path})
    run.path.mkdir()
    run.config.write_text(to_toml(resolve_run(config, detect())))
    run.ledger.touch()
    run.audit.touch()
    assert RunInputs.of(config).write_manifest(config, run) == ""
    source.write_text(HEAD + "# another\n")
    words = [sys.executable, "-c", WITHOUT_WEIGHT, "resume", str(run.path)]
    for _ in range(2):
        answer = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=tmp_path)
        assert answer.returncode == 7, answer.stderr
        assert "Changed since the run started: source: mine.py." in answer.stdout
    assert len(list(run.path.glob("manifest-*.json"))) == 1


MANIFEST_ENV = """
from agentrl.env import Env, Task
class Mine(Env):
    def tasks(self, split): return [Task("a")]
    def setup(self, task, ctx): return []
"""


def source_of(name: str) -> Callable[[], PluginSource]:
    """What an inspection of an environment in this interpreter gives."""
    return partial(plugin_source, name, resolve(name))


def test_a_resume_names_which_of_its_inputs_changed(tmp_path: Path) -> None:
    source, data, model = tmp_path / "mine.py", tmp_path / "rows.jsonl", tmp_path / "model"
    source.write_text(MANIFEST_ENV)
    data.write_text("{}")
    model.mkdir()
    (model / "config.json").write_text("{}")
    config = Config.model_validate({"env": {"name": str(source), "files": [str(data)]}})
    inputs, run = RunInputs((source_of(str(source)),), model, ""), RunFolder(tmp_path)
    assert inputs.write_manifest(config, run) == ""
    assert inputs.write_manifest(config, run) == ""
    source.write_text(MANIFEST_ENV + "# another\n")
    data.write_text("[]")
    note = inputs.write_manifest(config, run)
    assert note == "Changed since the run started: source: mine.py; data: rows.jsonl."
    assert (tmp_path / "manifest-1.json").is_file()


def test_the_algorithm_is_an_input_like_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "algo.py").write_text("from agentrl.algorithms import GRPO\nclass Mine(GRPO): pass\n")
    model_files(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    config = anchored(Config.model_validate({"algorithm": {"name": "algo.py:Mine", "teacher": "./model"}}))
    assert config.algorithm.name == f"{tmp_path}/algo.py:Mine"
    assert config.algorithm.options == {"teacher": f"{tmp_path}/model"}
    algorithm = type(algorithm_of(Config.model_validate({"algorithm": {"name": config.algorithm.name}})))
    inputs, run = RunInputs((source_of("guess"),), tmp_path / "model", "", algorithm), RunFolder(tmp_path)
    assert inputs.write_manifest(config, run) == ""
    with (tmp_path / "algo.py").open("a") as file:
        file.write("# another\n")
    assert inputs.write_manifest(config, run) == "Changed since the run started: algorithm: algo.py."


def model_files(folder: Path) -> Path:
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_text("{}")
    return folder


ROLES = ("model", "critic", "teacher", "reward model kind")


@pytest.mark.parametrize("changed", ROLES)
def test_a_resume_with_another_model_in_any_role_is_refused_by_the_role(changed: str, tmp_path: Path) -> None:
    folders = {role: model_files(tmp_path / role) for role in ROLES}
    rewards = [{"name": "kind", "model": str(folders[ROLES[3]])}, {"name": "remote", "url": "http://127.0.0.1:1"}]
    config = Config.model_validate(
        {
            "critic": {"model": str(folders["critic"])},
            "algorithm": {"name": "distillation", "teacher": str(folders["teacher"])},
            "reward": {"models": rewards},
        }
    )
    inputs, run = RunInputs((source_of("guess"),), folders["model"], "", GRPO), RunFolder(tmp_path)
    assert inputs.write_manifest(config, run) == ""
    (folders[changed] / "model.safetensors").write_text("[]")
    with pytest.raises(ConfigError, match=rf"have changed since .* started: {changed}: model\.safetensors\."):
        inputs.write_manifest(config, run)


def test_a_run_of_an_earlier_version_is_refused_before_its_keys_are_read(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.config.write_text("[learner]\nminibatches = 2\n")
    run.ledger.touch()
    with pytest.raises(ConfigError, match="was written by an earlier version of agentrl: resume it with that version"):
        launch.resume(run.path)


def test_a_resume_writes_nothing_without_the_lock_and_leaves_no_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def for_resume(_: Config, folder: RunFolder) -> RunInputs:
        assert folder == run
        with pytest.raises(RunError, match="is in use by process"):
            check_free(folder.path)
        raise ConfigError("as far as this")

    run = RunFolder(tmp_path)
    run.config.write_text('[env]\nname = "guess"\n')
    run.ledger.touch()
    run.audit.touch()
    monkeypatch.setattr(RunInputs, "for_resume", for_resume)
    monkeypatch.chdir(tmp_path.parent)
    with pytest.raises(ConfigError, match="as far as this"):
        launch.resume(Path(tmp_path.name))


def test_the_dry_run_finds_modules_beside_a_notebook(
    apart: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_the_notebook.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    apart("def setup(self, task, ctx): import beside_the_notebook; return [Message(role='user', content='?')]")


HIGH = "class Config(EnvConfig):\n high: int = 3\n"
OWN = "def __init__(self, config=None, **options): super().__init__(config.model_copy(update={'high': 9}))"


def test_an_author_may_pass_a_config_of_their_own_but_not_lose_that_of_the_run(check: Check) -> None:
    for options in ({}, {"high": 4}):
        check(HIGH + OWN, env=options)
    with pytest.raises(ConfigError, match=r"^Mine \(mine\.py:24\) loses its config: write def"):
        check(f"{HIGH}def __init__(self, path): super().__init__()", env={"high": 4})


def test_a_configuration_that_cannot_be_written_leaves_the_folder_free(tmp_path: Path) -> None:
    config = Config.model_validate({"out": tmp_path / "run", "env": {"name": "guess"}})
    odd = Config.model_validate({"out": tmp_path / "run", "env": {"name": "./\udcff.py"}})
    with pytest.raises(ConfigError, match=r"udcff\.py.* is not UTF-8: rename the file"):
        launch.new_folder(odd)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9, limits[1]))
    try:
        with pytest.raises(ConfigError, match=r"cannot write .*: File too large"):
            launch.new_folder(config)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert launch.new_folder(config).config.is_file()


def test_the_home_folder_is_expanded_in_every_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Config.model_validate({"out": "~/runs/x"}).out == tmp_path / "runs/x"
    run = launch.new_folder(Config.model_validate({"out": "~/run", "env": {"name": "guess"}}))
    assert existing_run("~/run") == run.path
