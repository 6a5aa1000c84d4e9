"""From Python a run is asked for by keywords; an environment may be a class; a running event loop is no obstacle."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import agentrl
from agentrl.algorithms import RLOO
from agentrl.algorithms.registry import make_algorithm
from agentrl.cluster.signals import Stop, run_until_stopped
from agentrl.config.schema import Config
from agentrl.env import Context, Env, EnvConfig, Message, Task, resolve, reward
from agentrl.errors import ConfigError
from agentrl.records.folder import RunFolder
from agentrl.training import launch
from tests.unit.records.synthetic import synthetic_run


class Sums(Env):
    class Config(EnvConfig):
        high: int = 9
        day: date | None = None

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}-{n}", n) for n in range(3)]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="user", content="?")]

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text == "yes")


Launched = list[Any]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Launched:
    """What would be launched; a run folder with its files stands for the run."""
    calls: Launched = []

    def start(config: Config, *rest: object) -> RunFolder:
        calls.append(config)
        return synthetic_run(config.out or tmp_path / "run", steps=2)

    def go_on(path: Path, settings: list[Any]) -> RunFolder:
        calls.extend([path, *settings])
        return synthetic_run(path, steps=2)

    monkeypatch.setattr(launch, "train", start)
    monkeypatch.setattr(launch, "evaluate", start)
    monkeypatch.setattr(launch, "resume", go_on)
    monkeypatch.chdir(tmp_path)
    return calls


# --- settings ---------------------------------------------------------------------------------------------------


def test_settings_are_short_flags_keys_or_sections(tmp_path: Path) -> None:
    config = agentrl.load_config(
        env="guess", env_options={"high": 20}, model=tmp_path, lr=1e-5, group_size=4, steps=3, rollout={"prompts": 2}
    )
    assert (config.env[0].name, config.env[0].options, config.model.name) == ("guess", {"high": 20}, str(tmp_path))
    assert (config.learner.lr, config.rollout.group_size, config.rollout.prompts, config.steps) == (1e-5, 4, 2, 3)
    assert agentrl.load_config(env={"name": "guess", "high": 20}).env == config.env
    assert agentrl.load_config(env=Path("./mine")).env[0].name == str(Path("mine").absolute())
    several = agentrl.load_config(env=[{"name": "math", "weight": 2}, "guess"])
    assert [(env.name, env.weight) for env in several.env] == [("math", 2), ("guess", 1)]
    with pytest.raises(ConfigError, match=r'env lists the class GuessEnv: name its file, as in "./file.py:GuessEnv"'):
        agentrl.load_config(env=[resolve("guess"), "math"])


def test_settings_override_the_file_and_none_sets_nothing(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("steps = 3\nseed = 5\n")
    config = agentrl.load_config(tmp_path / "run.toml", steps=4, seed=None, env_options={"high": None})
    assert (config.steps, config.seed, config.env[0].options) == (4, 5, {})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"lr": -1}, "learner.lr must be greater than or equal to 0, got -1 (argument lr)"),
        ({"lrr": 1}, "unknown key 'lrr' (argument lrr). Did you mean 'learner.lr'?"),
        ({"rollout": {"promts": 1}}, "unknown key 'rollout.promts' (argument rollout['promts'])"),
        ({"rollout": 3}, "'rollout' (argument rollout) is a section, not a key"),
        ({"learner": {"minibatches": 2}}, "learner.minibatches (argument learner['minibatches']) is now called"),
        ({"steps": 1.5}, "steps must be a whole number, without a point, got 1.5 (argument steps)"),
        ({"steps": True}, "steps must be a whole number, got True (argument steps)"),
        ({"toml": {"steps": 3}}, "argument toml must be a non-empty path, got {'steps': 3}"),
        ({"toml": ""}, "argument toml must be a non-empty path, got ''"),
        ({"env": ""}, "env.name must not be empty, got '' (argument env)"),
        ({"out": " "}, "out must not be empty, got ' ' (argument out)"),
        ({"model": ""}, "model.name must not be empty, got '' (argument model)"),
        ({"env_options": [1]}, "env_options must be a dict, got [1]"),
        (
            {"env": {"high": 1}, "env_options": {"high": 2}},
            "env.high is set twice (argument env['high'], argument env_",
        ),
        ({"env_options": {"x": object()}}, "env.x (argument env_options['x']) has the type object, which"),
    ],
)
def test_a_wrong_argument_is_refused_by_its_name(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        agentrl.load_config(**arguments)
    assert words in str(refused.value)


def test_a_configuration_is_the_base_and_keeps_its_environment(launched: Launched, tmp_path: Path) -> None:
    base = agentrl.load_config(env="guess", env_options={"day": date(2026, 1, 2)}, steps=3, out=tmp_path / "mine")
    run = agentrl.train(base, lr=1e-5)
    [config] = launched
    assert (config.env, config.steps, config.learner.lr, config.out) == (base.env, 3, 1e-5, tmp_path / "mine")
    assert (run.path, len(run.steps)) == (tmp_path / "mine", 2)


def test_a_resume_is_asked_for_in_the_same_words(launched: Launched, tmp_path: Path) -> None:
    assert agentrl.resume(str(tmp_path), steps=7, eval={"every": 2}).path == tmp_path
    path, *settings = launched
    assert path == tmp_path
    assert [(s.key, s.value, s.source) for s in settings] == [
        ("steps", 7, "argument steps"), ("eval.every", 2, "argument eval['every']"),
    ]  # fmt: skip


def test_a_run_is_accepted_where_its_folder_is(launched: Launched, tmp_path: Path) -> None:
    folder = synthetic_run(tmp_path / "mine", steps=2)
    run = agentrl.Run(agentrl.Run(folder.path))
    assert run.path == folder.path
    assert agentrl.export(run) == folder.path / "trajectories.jsonl"
    (folder.checkpoints / "step-000002").mkdir(parents=True)
    agentrl.evaluate(run)
    assert launched[0].model.name == str(folder.checkpoints / "step-000002")
    (tmp_path / "config.toml").touch()
    assert agentrl.resume(agentrl.Run(tmp_path)).path == launched[1] == tmp_path


def test_an_evaluation_refuses_what_it_would_ignore(launched: Launched) -> None:
    with pytest.raises(ConfigError, match="argument lr has no effect in an evaluation"):
        agentrl.evaluate("owner/name", lr=1e-5)
    agentrl.evaluate("owner/name", config=Config(seed=3), env="guess", eval={"samples": 2})
    assert (launched[0].model.name, launched[0].seed, launched[0].eval.samples) == ("owner/name", 3, 2)


def test_an_evaluation_takes_reward_models(launched: Launched) -> None:
    models = [{"name": "helpful", "url": "http://127.0.0.1:9/get_reward", "weight": 0.5}]
    agentrl.evaluate("owner/name", env="guess", reward={"models": models, "score_timeout_s": 5.0})
    assert [model.name for model in launched[0].reward.models] == ["helpful"]
    assert launched[0].reward.score_timeout_s == 5.0


# --- an environment's class -------------------------------------------------------------------------------------


def test_a_class_with_a_name_goes_by_its_name(launched: Launched) -> None:
    agentrl.train(env=resolve("guess"))
    assert (launched[0].env[0].name, launched[0].out) == ("guess", None)
    assert agentrl.load_config(env=resolve("guess")).env[0].name == "guess"


def test_a_class_without_a_name_is_pickled_into_the_run_folder(launched: Launched, tmp_path: Path) -> None:
    run = agentrl.train(env=_local(), env_options={"high": 3}, out="runs/x")
    assert run.path == tmp_path / "runs/x"
    assert launched[0].env[0].name == str(run.path / "env.pkl")
    assert resolve(launched[0].env[0].name).__name__ == "Local"
    agentrl.train(env=_local())
    assert launched[1].out.parent == tmp_path / "runs"
    assert launched[1].out.name.startswith("Local-")


def test_an_algorithm_is_a_name_a_path_or_a_class(launched: Launched, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from agentrl.algorithms import RLOO\nclass Mine(RLOO): pass\n")
    config = agentrl.load_config(algo=Path("mine.py"), algorithm={"clip_low": 0.1})
    assert (config.algorithm.name, config.algorithm.options) == (str(tmp_path / "mine.py"), {"clip_low": 0.1})
    assert agentrl.load_config(algo=RLOO).algorithm.name == agentrl.load_config(algo="rloo").algorithm.name == "rloo"
    run = agentrl.train(env=_local(), algo=type("Mine", (RLOO,), {}), out="runs/x")
    names = launched[0].env[0].name, launched[0].algorithm.name
    assert names == (str(run.path / "env.pkl"), str(run.path / "algo.pkl"))
    assert make_algorithm(launched[0].algorithm).name == "Mine"
    agentrl.train(env="guess", algo=RLOO)
    assert (launched[1].algorithm.name, launched[1].out) == ("rloo", None)
    for wrong, words in ((Sums, "the class Sums"), (RLOO(), "an object of the class RLOO"), ({}, "an object")):
        with pytest.raises(ConfigError, match=f"^algo is {words}.*: pass a subclass of agentrl.algorithms.Algorithm"):
            agentrl.train(algo=wrong)
    with pytest.raises(ConfigError, match=r"`agentrl\.train\(config, algo=Mine\)`.* algo=\"\./file\.py:Mine\""):
        agentrl.load_config(algo=type("Mine", (RLOO,), {}))


def test_a_refusal_leaves_no_pickle_and_another_run_untouched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.toml").touch()
    (tmp_path / "run/env.pkl").write_text("of that run")
    for out, words in (("run", "contains a run already"), ("new", "learner.lr must be")):
        with pytest.raises(ConfigError, match=words):
            agentrl.train(env=_local(), out=tmp_path / out, lr=-1)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["config.toml", "env.pkl", "run"]
    assert (tmp_path / "run/env.pkl").read_text() == "of that run"


@pytest.mark.parametrize("function", [agentrl.train, agentrl.load_config])
def test_what_is_no_environment_class_is_refused(function: Any, tmp_path: Path, launched: Launched) -> None:
    assert not launched
    for env, kind in ((int, "the class int"), (Sums(Sums.Config()), "an object of the class Sums"), (sys, "an object")):
        with pytest.raises(ConfigError, match=f"^env is {kind}.*: pass a subclass of agentrl.env.Env"):
            function(env=env)
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_leaves_no_folder(launched: Launched, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"learner\.lr must be"):
        agentrl.train(env=_local(), lr=-1)
    assert (launched, list(tmp_path.iterdir())) == ([], [])


def test_a_configuration_or_a_path_of_another_type_is_refused(launched: Launched) -> None:
    with pytest.raises(
        ConfigError, match=r"config must be an agentrl.Config, got 'run.toml': .* or read a file with load_config"
    ):
        agentrl.train("run.toml")  # type: ignore[arg-type]
    for env, name in (("guess", "'guess'"), (Sums, "Sums")):
        with pytest.raises(ConfigError, match=f"got {name}: choose an environment with env={name}, or"):
            agentrl.train(env)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"config must be an agentrl.Config"):
        agentrl.evaluate("owner/name", config={"steps": 3})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="argument model must be a non-empty path, got None"):
        agentrl.evaluate(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="argument out must be a non-empty path, got 3"):
        agentrl.train(env=_local(), out=3)
    with pytest.raises(ConfigError, match="argument out must be a non-empty path, got ''"):
        agentrl.train(env=_local(), out="")
    with pytest.raises(ConfigError, match="argument path must be a non-empty path, got None"):
        agentrl.resume(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="argument path must be a non-empty path, got ''"):
        agentrl.resume("")
    assert launched == []


def test_a_configuration_alone_holds_no_class() -> None:
    words = r"other processes cannot import the class Local.*`agentrl.train\(config, env=Local\)`, or move it"
    with pytest.raises(ConfigError, match=words):
        agentrl.load_config(env=_local())


def _local() -> type[Env]:
    class Local(Sums):
        pass

    return Local


# --- a running event loop ---------------------------------------------------------------------------------------


def test_a_run_inside_a_running_loop_has_a_thread_of_its_own() -> None:
    async def work() -> threading.Thread:
        with Stop().on_signals():
            return threading.current_thread()

    async def notebook() -> threading.Thread:
        return run_until_stopped(work())

    assert run_until_stopped(work()) is threading.main_thread()
    assert asyncio.run(notebook()) is not threading.main_thread()


NOTEBOOK = """
import asyncio, signal, threading
from agentrl.cluster.signals import Stop, run_until_stopped
signal.signal(signal.SIGINT, signal.default_int_handler)
# The signal reaches a thread other than the main one: the main one's wait is not interrupted by it.
threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])

async def work():
    stop = Stop()
    with stop.on_signals():
        print("ready", flush=True)
        try:
            await stop.cut(asyncio.sleep(600))
        finally:
            print("saved", flush=True)

async def notebook():
    {call}

try:
    asyncio.run(notebook())
except KeyboardInterrupt as stopped:
    print("stopped by", stopped)
"""


@pytest.mark.parametrize("is_loop", [True, False])
def test_an_interrupt_reaches_a_run_wherever_it_runs(is_loop: bool) -> None:
    code = NOTEBOOK.format(call="run_until_stopped(work())" if is_loop else "await work()")
    if not is_loop:
        code = code.replace("asyncio.run(notebook())", "run_until_stopped(work())")
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        run.send_signal(signal.SIGINT)
        try:
            shown, errors = run.communicate(timeout=30)
        finally:
            run.kill()
        assert shown == "saved\nstopped by SIGINT\n"
        assert "SIGINT: stopping" in errors


def test_a_check_outside_the_main_thread_leaves_the_exit_of_the_process_alone(tmp_path: Path) -> None:
    seen: list[str] = []

    def check() -> None:
        try:
            agentrl.train(env=_telling(), out=tmp_path / "run")
        except ConfigError as error:
            seen.append(str(error))

    thread = threading.Thread(target=check)
    thread.start()
    thread.join(50)
    check()
    assert ["OSError: exits" in error for error in seen] == [False, True]


def _telling() -> type[Env]:
    class Telling(Sums):
        def preflight(self) -> str:
            raise OSError(os._exit.__name__)

    return Telling
