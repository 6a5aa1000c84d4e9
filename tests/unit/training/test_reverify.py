"""Reverification: stored episodes run again without a model, and what another verifier makes of them is told."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agentrl.cli.main import main
from agentrl.config.schema import Config
from agentrl.config.toml import to_toml
from agentrl.engine.scripted import ScriptedEngine
from agentrl.records.folder import RunFolder
from agentrl.records.ledger import Ledger, State
from agentrl.records.store import TrajectoryStore, records_in
from agentrl.roles.spec import specs_of
from agentrl.rollout.task_order import epoch_seed, evaluation_seed
from agentrl.rollout.worker import RolloutWorker
from agentrl.training.reverify import Choice, plans_of
from agentrl.training.rollouts import episode_seed, episode_settings
from agentrl.types import HELD_OUT, TRAIN, EpisodeRequest, SampleId, StopReason, Trajectory
from tests.unit.hosting.venvs import made_venv
from tests.unit.rollout.cases import Listening
from tests.unit.rollout.templates import encode, tokenizer

SEED, EPOCH = 5, 2
pytestmark = pytest.mark.timeout(240)  # each reverification starts a process
STEP_MODE = """
from agentrl.env import Env, Limits, Reply, Task, reward, tool
from agentrl.types import Signal

class Words(Env):
    limits = Limits(max_turns=4, score_timeout_s=2)
    blocking = False

    def tasks(self, split):
        return [Task(f"{split}-{n}", n) for n in range(TASKS)]

    def setup(self, task, ctx):
        ctx.state.looked = 0
        return [{"role": "user", "content": f"PROMPT {task.data}, dice {ctx.rng.random():.6f}"}]

    @tool
    def look(self) -> str:
        \"\"\"Look.\"\"\"
        self.ctx.state.looked += 1
        return "ANSWER"

    def respond(self, turn, ctx):
        return Reply.go_on() if turn.results else Reply.end()

    @reward
    def right(self, ctx):
        VERDICT

    @reward(weight=0.5)
    def looked(self, ctx):
        return float(ctx.state.looked)
"""
DEFAULTS = {"TASKS": "4", "PROMPT": "task", "ANSWER": "nothing", "VERDICT": 'return float("yes" in ctx.text)'}
LOOK = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'


After = Callable[[Trajectory], Trajectory]


def as_played(trajectory: Trajectory) -> Trajectory:
    return trajectory


def source(template: str = STEP_MODE, **changes: str) -> str:
    for name, text in {**DEFAULTS, **changes}.items():
        template = template.replace(name, text)
    return template


@dataclass
class Stage:
    """Plays and stores episodes as a run does, and scores them again."""

    path: Path
    model: Path
    keys: dict[str, Any] = field(default_factory=dict)
    """Further keys of each environment."""

    def config(self, *envs: str) -> Config:
        tables = [{"name": str(self.path / env), **self.keys} for env in envs or ("words.py",)]
        return Config.model_validate(
            {"env": tables, "seed": SEED, "model": {"name": str(self.model)}, "rollout": {"max_tokens": 64}}
        )

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.path / "run")

    async def play(
        self, script: Any, members: int = 1, groups: int = 2, *, env: int = 0, envs: Any = (), after: After = as_played
    ) -> None:
        """Store episodes of training, in a later epoch, as trained in steps 1, 2, …; `after` may change each."""
        config = self.begin(*envs)
        section, ledger = config.env[env], Ledger(self.run.ledger)
        ledger.begin_incarnation()
        seed = epoch_seed(episode_seed(config, section), EPOCH)
        settings = episode_settings(config, section)
        requests = [
            [
                EpisodeRequest(SampleId(group, member), 0, TRAIN, group, seed, settings, section.label, EPOCH)
                for member in range(members)
            ]
            for group in range(groups)
        ]
        played = await self._sample(config, section.name, requests, script, after)
        with_store = TrajectoryStore(self.run.trajectories)
        with_store.append([t for group in played for t in group])
        with_store.close()
        for step, (group, asked) in enumerate(zip(played, requests, strict=True), 1):
            ledger.dispatched(asked)
            ledger.finished(group)
            ledger.trained([t.sample for t in group if t.is_trainable], step)
            ledger.settle([(t.sample, 0) for t in group if not t.is_trainable], State.INVALID, "why")
        ledger.close()

    async def evaluate(self, script: Any, *envs: str) -> None:
        """Store an evaluation of two tasks of each environment after step 3."""
        config, store = self.begin(*envs), TrajectoryStore(self.run.evaluated(3))
        for number, section in enumerate(config.env):
            seed = evaluation_seed(episode_seed(config, section))
            samples = [SampleId(2 * number + task, 0) for task in range(2)]
            settings = episode_settings(config, section)
            requests = [
                [EpisodeRequest(sample, 0, HELD_OUT, task, seed, settings, section.label)]
                for task, sample in enumerate(samples)
            ]
            played = await self._sample(config, section.name, requests, script)
            store.append([t for group in played for t in group])
        store.close()

    def begin(self, *envs: str) -> Config:
        self.run.path.mkdir(exist_ok=True)
        config = self.config(*envs)
        self.run.config.write_text(to_toml(config))
        return config

    async def _sample(
        self, config: Config, env: str, requests: list[list[EpisodeRequest]], script: Any, after: After = as_played
    ) -> list[Sequence[Trajectory]]:
        engine = await ScriptedEngine.ready(
            script, encode=lambda text: encode(tokenizer(), text), vocab_size=len(tokenizer())
        )
        context = config.model.max_context
        roles = specs_of(config.env[0].roles or {}).values()
        worker = RolloutWorker(env, {}, str(self.model), Listening(engine), context, SEED, roles)
        try:
            groups = [[after(await worker.run(request)) for request in group] for group in requests]
            return [await worker.score_group(group) for group in groups]
        finally:
            await worker.close()

    def write(self, name: str = "words.py", template: str = STEP_MODE, **changes: str) -> str:
        (self.path / name).write_text(source(template, **changes))
        return str(self.path / name)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def stage(model: Path, tmp_path: Path) -> Stage:
    made = Stage(tmp_path, model)
    made.write()
    return made


Reverify = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def again(stage: Stage, capsys: pytest.CaptureFixture[str]) -> Reverify:
    def reverify(*words: str) -> tuple[int, dict[str, Any]]:
        status = main(["env", "reverify", str(stage.run.path), "--json", *words])
        shown = capsys.readouterr()
        return status, json.loads(shown.out) if shown.out else {"error": shown.err}

    return reverify


def counts(report: dict[str, Any]) -> dict[str, int]:
    return {name: count for name, count in report["counts"].items() if count}


def test_the_same_verifier_changes_nothing_with_tools_and_later_epochs(stage: Stage, again: Reverify) -> None:
    asyncio.run(stage.play([LOOK, "yes"]))
    status, report = again()
    assert (status, counts(report)) == (0, {"unchanged": 2})


def test_a_flip_is_counted_with_its_signal_and_exits_1(
    stage: Stage, again: Reverify, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(stage.play([LOOK, "yes"], groups=3))
    stage.write("other.py", VERDICT='return float("yes" in ctx.text and ctx.task.data > 0)')
    status, report = again("--env", str(stage.path / "other.py"))
    assert (status, counts(report)) == (1, {"unchanged": 2, "flipped": 1})
    [flipped] = report["changed"]
    assert (flipped["sample"], flipped["was"], flipped["now"], flipped["signals"]) == ("0-0", 1.5, 0.5, "right 1 → 0")
    assert (flipped["was_solved"], flipped["is_solved"]) == (True, False)
    assert main(["env", "reverify", str(stage.run.path), "--env", str(stage.path / "other.py")]) == 1
    shown = capsys.readouterr().out
    assert "         1  reward 1.5 → 0.5\n" in shown
    assert "solved before and not now: 1; now and not before: 0" in shown
    assert "  0-0  1.5 → 0.5  task train-0: right 1 → 0" in shown


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"PROMPT": "question"}, "the prompt is not what was recorded"),
        ({"ANSWER": "a key"}, "what the model reads before turn 2 is not what was recorded"),
        ({"TASKS": "1"}, "the split 'train' has 1 tasks, and this was task 1"),
        ({"turn.results": "True"}, "the episode goes on after turn 2, where the recording ends"),
        ({"turn.results": "False"}, "the episode ends after turn 1, and 2 were recorded"),
        ({"{split}-{n}": "{split}/{n}"}, "task 1 of 'train' has another id"),
    ],
)
def test_an_episode_that_cannot_be_repeated_is_refused_by_name(
    stage: Stage, again: Reverify, changes: dict[str, str], reason: str
) -> None:
    asyncio.run(stage.play([LOOK, "yes"]))
    stage.write("other.py", **changes)
    _, report = again("--env", str(stage.path / "other.py"))
    refused = {one["sample"]: one["reason"] for one in report["changed"] if one["change"] == "refused"}
    assert refused["1-0"] == reason


def test_a_verifier_that_fails_is_told_apart_from_a_flip(stage: Stage, again: Reverify) -> None:
    asyncio.run(stage.play(["yes"]))
    stage.write("other.py", VERDICT='raise KeyError("gone")')
    status, report = again("--env", str(stage.path / "other.py"))
    assert (status, counts(report)) == (1, {"failed": 2})
    assert "KeyError" in report["changed"][0]["reason"]


def test_an_episode_whose_environment_now_fails_before_its_end_has_failed(stage: Stage, again: Reverify) -> None:
    asyncio.run(stage.play([LOOK, "yes"]))
    stage.write(
        "other.py", **{"return Reply.go_on()": 'raise KeyError("gone")', " if turn.results else Reply.end()": ""}
    )
    status, report = again("--env", str(stage.path / "other.py"))
    assert (status, counts(report)) == (1, {"failed": 2})
    assert "KeyError" in report["changed"][0]["reason"]


def test_a_reward_that_was_invalid_is_decided_by_a_verifier_that_works(stage: Stage, again: Reverify) -> None:
    stage.write(VERDICT='raise KeyError("gone")')
    asyncio.run(stage.play(["yes"]))
    stage.write("other.py")
    status, report = again("--env", str(stage.path / "other.py"))
    assert (status, counts(report)) == (1, {"decided": 2})
    assert (report["changed"][0]["was"], report["changed"][0]["now"]) == (None, 1.0)
    assert again()[0] == 0


RANKED = (
    STEP_MODE
    + """
    @reward(weight=2.0, scope="group")
    def rank(self, episodes):
        return [float(ORDER(len(e.text) for e in episodes) == len(e.text)) for e in episodes]
"""
)


def test_the_members_of_a_group_are_compared_again(stage: Stage, again: Reverify) -> None:
    stage.write(template=RANKED, ORDER="max")
    texts = iter(["yes", "yes yes", "yes", "yes yes"])
    asyncio.run(stage.play(lambda *_: next(texts), members=2))
    assert again()[0] == 0
    stage.write("other.py", template=RANKED, ORDER="min")
    status, report = again("--env", str(stage.path / "other.py"))
    assert (status, counts(report)) == (1, {"flipped": 4})
    assert {(one["was"], one["now"]) for one in report["changed"]} == {(1.0, 3.0), (3.0, 1.0)}


def test_a_member_that_the_run_did_not_compare_keeps_no_other_from_its_comparison(
    stage: Stage, again: Reverify
) -> None:
    def late(played: Trajectory) -> Trajectory:
        """The episode of member 2, which reached its deadline in the second turn."""
        [sequence] = played.sequences
        first = next(n for n, segment in enumerate(sequence.segments) if segment.is_action)
        cut = (replace(sequence, segments=sequence.segments[: first + 1]),)
        ended = {"stop_reason": StopReason.DEADLINE, "signals": (), "turns": 1, "messages": played.messages[:2]}
        return replace(played, sequences=cut, **ended) if played.sample.member == 2 else played

    stage.write(template=RANKED, ORDER="max")
    texts = iter(["yes", "yes yes", LOOK, "yes"] * 2)
    asyncio.run(stage.play(lambda *_: next(texts), members=3, after=late))
    status, report = again()
    assert (status, counts(report)) == (0, {"unchanged": 4, "refused": 2})
    stage.write("other.py", template=RANKED, ORDER="min")
    status, report = again("--env", str(stage.path / "other.py"))
    assert (status, counts(report)) == (1, {"flipped": 4, "refused": 2})


def test_a_member_whose_own_verifier_failed_is_not_compared_with_those_that_the_run_compared(
    stage: Stage, again: Reverify
) -> None:
    fails = 'if ctx.text == "no" and pathlib.Path(__file__).with_name("down").exists():\n            raise OSError'
    stage.write(template=f"import pathlib\n{RANKED}", ORDER="min", VERDICT=f"{fails}\n        return 1.0")
    (stage.path / "down").touch()
    texts = iter(["yes", "yes yes", "no"] * 2)
    asyncio.run(stage.play(lambda *_: next(texts), members=3))
    (stage.path / "down").unlink()
    status, report = again()
    assert (status, counts(report)) == (1, {"unchanged": 4, "decided": 2})


AGENT = """
from agentrl.env import AgentEnv, Task, reward

class Asks(AgentEnv):
    def tasks(self, split):
        return [Task(f"{split}-{n}", n) for n in range(4)]

    async def play(self, task, ctx, model):
        told = [{"role": "user", "content": f"task {task.data}"}]
        for _ in range(2):
            reply = await model.client.chat.completions.create(model=model.name, messages=told)
            said = reply.choices[0].message.content
            told += [{"role": "assistant", "content": said}, {"role": "user", "content": "go on"}]
        return said

    @reward
    def right(self, ctx):
        VERDICT
"""


def test_an_agents_episode_runs_again(stage: Stage, again: Reverify) -> None:
    stage.write(template=AGENT, VERDICT='return float(ctx.result == "two")')
    asyncio.run(stage.play(["one", "two"]))
    assert again()[0] == 0
    stage.write("other.py", template=AGENT, VERDICT='return float(ctx.result == "one")')
    status, report = again("--env", str(stage.path / "other.py"))
    assert (status, counts(report)) == (1, {"flipped": 2})


def test_steps_and_evaluations_are_chosen_and_several_environments_told_apart(
    stage: Stage, again: Reverify, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(stage.play(["yes"], groups=4))
    assert counts(again("--step", "2-3")[1]) == {"unchanged": 2}
    assert counts(again("--step", "4")[1]) == {"unchanged": 1}
    stage.write("more.py")
    asyncio.run(stage.evaluate(["yes"], "words.py", "more.py"))
    assert counts(again("--evaluation", "3")[1]) == {"unchanged": 4}
    other = stage.write("other.py", VERDICT="return 0.0")
    status, report = again("--evaluation", "3", "--label", "more", "--env", other)
    assert (status, counts(report)) == (1, {"flipped": 2})
    assert {one["env"] for one in report["changed"]} == {"more"}
    assert main(["env", "reverify", str(stage.run.path), "--evaluation", "3", "--label", "more", "--env", other]) == 1
    [name] = re.findall(r"^  (3/\d+-0)  ", capsys.readouterr().out, re.MULTILINE)[:1]
    assert main(["show", str(stage.run.path), name]) == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--env", "OTHER", "--env.hgih", "3"], "hgih"),
        (["--env", "gess"], "unknown environment 'gess'. Did you mean 'guess'?"),
        (["--env.weight", "2"], "--env.weight cannot be changed when trajectories are scored again"),
        (["--label", "wrds"], "has no environment 'wrds'. Did you mean 'words'?"),
        (["--step", "0"], "has no such trajectories: choose from the steps 1 to 2, or an evaluation"),
        (["--step", "9"], "has no such trajectories: choose from the steps 1 to 2, or an evaluation"),
        (["--step", "3-1"], "'3-1' is neither a step nor a range of steps such as 10-20"),
        (["--evaluation", "7"], "has no evaluation"),
    ],
)
def test_what_cannot_be_scored_exits_2_with_one_message(
    stage: Stage, again: Reverify, words: list[str], says: str
) -> None:
    asyncio.run(stage.play(["yes"]))
    words = [stage.write("other.py") if word == "OTHER" else word for word in words]
    status, report = again(*words)
    assert status == 2
    assert says in report["error"]


def test_several_environments_need_a_label_for_another_verifier(stage: Stage, again: Reverify) -> None:
    stage.write("more.py")
    asyncio.run(stage.evaluate(["yes"], "words.py", "more.py"))
    status, report = again("--evaluation", "3", "--env", str(stage.path / "more.py"))
    assert status == 2
    assert "say with --label which of them: words, more" in report["error"]


def test_a_run_of_which_nothing_can_be_scored_exits_2_with_the_reason(
    stage: Stage, again: Reverify, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(stage.play(["yes"]))
    other = stage.write("other.py", PROMPT="question")
    assert main(["env", "reverify", str(stage.run.path), "--env", other]) == 2
    shown = capsys.readouterr()
    assert "     2  the prompt is not what was recorded, first sample 0-0" in shown.out
    assert shown.err == ("error: nothing to score: 2 refused: the prompt is not what was recorded, first sample 0-0\n")


def test_what_is_left_of_a_damaged_store_is_scored_and_the_file_named(stage: Stage, again: Reverify) -> None:
    asyncio.run(stage.play(["yes"], groups=3))
    [shard] = stage.run.trajectories.glob("*.bin")
    refs = [ref for ref, _, _ in records_in(stage.run.trajectories)]
    shard.write_bytes(shard.read_bytes()[: refs[2].offset + 50])
    status, report = again()
    assert (status, counts(report)) == (2, {"unchanged": 2})
    assert (
        report["fault"] == f"1 trajectory cannot be read, first sample 2-0: {shard} is damaged; the others were scored"
    )
    shard.write_bytes(b"")
    status, report = again()
    assert status == 2
    assert "nothing to score: 3 trajectories cannot be read, first sample 0-0" in report["error"]


def test_the_rest_of_a_group_is_not_compared_without_a_member_that_is_lost(stage: Stage, again: Reverify) -> None:
    stage.write(template=RANKED, ORDER="max")
    asyncio.run(stage.play(["yes"], members=2))
    [shard] = stage.run.trajectories.glob("*.bin")
    refs = [ref for ref, _, _ in records_in(stage.run.trajectories)]
    shard.write_bytes(shard.read_bytes()[: refs[3].offset])
    status, report = again()
    assert (status, counts(report)) == (2, {"unchanged": 2, "refused": 1})
    assert report["changed"][0]["reason"] == "another member of its group cannot be read"


# --- where the verifier runs --------------------------------------------------------------------------------------

ELSEWHERE = "import sys; return float(sys.prefix == {prefix!r})"
"""A verdict that tells in which interpreter it is reached."""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_venv(tmp_path_factory.mktemp("other"), "httpx")


def test_the_verifier_runs_in_the_interpreter_of_the_run(stage: Stage, again: Reverify, python: Path) -> None:
    stage.keys = {"python": str(python)}
    asyncio.run(stage.play([LOOK, "yes"]))
    assert counts(again()[1]) == {"unchanged": 2}
    there = ELSEWHERE.format(prefix=str(python.parent.parent))
    other = stage.write("other.py", VERDICT=there)
    assert counts(again("--env", other)[1]) == {"unchanged": 2}
    status, report = again("--env", other, "--env.python", sys.executable)
    assert (status, counts(report)) == (1, {"flipped": 2})


def test_another_verifier_by_name_runs_where_it_is(stage: Stage) -> None:
    stage.keys = {"python": "/nowhere/python"}
    asyncio.run(stage.play(["yes"]))
    [plan] = plans_of(stage.run.path, Choice(), "guess")
    assert plan.verifier.python is None


def test_an_interpreter_that_is_gone_is_refused(stage: Stage, again: Reverify) -> None:
    stage.keys = {"python": "/nowhere/python"}
    asyncio.run(stage.play(["yes"]))
    status, report = again()
    assert status == 2
    assert "/nowhere/python" in report["error"]


def test_a_verifier_that_ends_its_process_is_named_with_the_trajectory(stage: Stage, again: Reverify) -> None:
    asyncio.run(stage.play(["yes"], groups=3))
    other = stage.write("other.py", VERDICT="import os; return ctx.task.id != 'train-1' or os._exit(5)")
    status, report = again("--env", other)
    assert status == 2
    assert "error: words: trajectory 1-0 cannot be scored: " in report["error"]
    assert "the environment's process ended with exit code 5" in report["error"]


def test_a_verifier_that_hangs_has_failed(stage: Stage, again: Reverify) -> None:
    asyncio.run(stage.play(["yes"]))
    slow = {"score_timeout_s=2": "score_timeout_s=0.2", "blocking = False": "blocking = True"}
    other = stage.write("other.py", VERDICT="import time; time.sleep(600)", **slow)
    status, report = again("--env", other)
    assert (status, counts(report)) == (1, {"failed": 2})
    assert "Words.right ran longer than 0.2 s" in report["changed"][0]["reason"]


def test_the_verifier_of_a_server_scores(stage: Stage, again: Reverify) -> None:
    asyncio.run(stage.play([LOOK, "yes"]))
    other = stage.write("other.py", VERDICT="return 0.0")
    command = [sys.executable, "-m", "agentrl", "env", "serve", other, "--protocol", "agentrl", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        address = next(word for line in server.stdout for word in line.split() if word.startswith("agentrl://"))
        status, report = again("--env", address)
    finally:
        server.terminate()
        server.communicate(timeout=60)
    assert (status, counts(report)) == (1, {"flipped": 2})


PLAYED = STEP_MODE.replace(
    "@tool", "@role\n    def friend(self, messages):\n        return 'yes'\n\n    @tool"
).replace("reward, tool", "reward, role, tool")


def test_a_role_that_the_policy_played_is_refused(stage: Stage, again: Reverify) -> None:
    stage.write(template=PLAYED)
    stage.keys = {"roles": {"friend": {"model": "policy"}}}
    asyncio.run(stage.play([LOOK, "yes"]))
    status, report = again()
    assert status == 2
    assert "words: a model of the run plays friend" in report["error"]
    assert "give --roles.friend.url and --roles.friend.model" in report["error"]
    assert counts(again("--roles.friend.url", "http://127.0.0.1:9", "--roles.friend.model", "m")[1]) == {"unchanged": 2}


def test_a_role_that_the_run_did_not_have_is_given_by_flags(stage: Stage, again: Reverify) -> None:
    asyncio.run(stage.play([LOOK, "yes"]))
    other = stage.write("other.py", template=PLAYED)
    status, report = again("--env", other)
    assert status == 2
    assert "words: nobody plays friend, which the run did not have: give --roles.friend.url" in report["error"]
    role = ["--roles.friend.url", "http://127.0.0.1:9", "--roles.friend.model", "m"]
    assert counts(again("--env", other, *role)[1]) == {"unchanged": 2}
