"""The `agentrl` command: quick help, one clear message for an error, nothing heavy before it is needed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from agentrl.cli import main as entry
from agentrl.cli.flags import split
from agentrl.cli.main import COMMANDS, main
from agentrl.cluster.leftovers import CLEANUPS_GROUP
from agentrl.cluster.processes import ProcessRegistry
from agentrl.cluster.signals import Stopped, run_until_stopped
from agentrl.config.keys import SHORT_FLAGS
from agentrl.config.loading import load, of_flags
from agentrl.config.resolve import resolve_run
from agentrl.errors import ConfigError, RunError
from agentrl.records.folder import RunFolder, run_lock
from agentrl.report.run import Run
from agentrl.training.inputs import algorithm_of
from tests.tiny import tiny_model
from tests.unit.config.test_resolve import FOUR_GPUS, LAPTOP
from tests.unit.records.synthetic import synthetic_run

HEAVY = ("torch", "ray", "vllm", "deepspeed", "transformers")


def agentrl(*words: str) -> list[str]:
    return [sys.executable, "-c", "import sys; from agentrl.cli.main import main; sys.exit(main())", *words]


def test_help_is_quick_for_it_imports_next_to_nothing() -> None:
    code = "import sys\nbefore = set(sys.modules)\n{}\nprint(*sorted(set(sys.modules) - before))"
    command = code.format("from agentrl.cli.main import main\nmain(['--help'])")
    answer = subprocess.run([sys.executable, "-c", command], check=True, capture_output=True, text=True, timeout=30)
    loaded = answer.stdout.splitlines()[-1].split()
    assert [name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names] == [
        "agentrl", "agentrl.cli", "agentrl.cli.main", "agentrl.errors",
    ]  # fmt: skip
    assert "asyncio" not in loaded


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["doctor"], ["train", "--lrr", "1"]])
def test_nothing_heavy_is_imported_for_an_answer(words: list[str]) -> None:
    code = (
        "import sys\nfrom agentrl.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print('heavy', [m for m in {HEAVY} if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60)
    assert answer.stdout.splitlines()[-1] == "heavy []"


def test_the_installed_entry_point_is_main() -> None:
    from importlib.metadata import entry_points

    (point,) = entry_points(group="console_scripts", name="agentrl")
    assert point.load() is main


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"agentrl {command}" in capsys.readouterr().out


def test_the_help_of_eval_shows_the_flags_that_an_evaluation_reads(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["eval", "--help"])
    flags = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  --")]
    assert flags[1:] == [
        "--env", "--model", "--max-tokens", "--seed", "--out",
        "--eval.tasks", "--eval.samples", "--eval.temperature", "--eval.k",
    ]  # fmt: skip


def test_the_ten_everyday_flags_are_in_the_help_of_train(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = capsys.readouterr().out
    assert len(SHORT_FLAGS) == 10
    assert all(f"--{flag} " in text for flag in SHORT_FLAGS)


@pytest.mark.parametrize("command", ["train", "eval"])
def test_help_says_what_a_default_means(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  --")][1:]
    shown = {line.split()[0]: line.rpartition(" (")[2].rstrip(")") for line in lines}
    assert [flag for flag, text in shown.items() if text in ("", "0", "0.0", "auto", "None") and flag != "--seed"] == []
    assert shown["--max-tokens"] == "24 for the embedded model, else 512"
    assert shown["--out"] == "runs/<env>-<time>"
    assert shown.get("--eval.k", "same as eval.samples") == "same as eval.samples"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "unknown command 'trian'. Did you mean 'train'?"),
        (["train", "--learner.lrr", "1"], "Did you mean 'learner.lr'?"),
        (["train", "--kl_weight", "1"], "kl_weight (--kl_weight) is now called algorithm.kl_coef."),
        (["train", "a", "b"], "unrecognized arguments: b (see `agentrl train --help`)"),
        (["resume"], "the following arguments are required: RUN (see `agentrl resume --help`)"),
        (["show"], "the following arguments are required: RUN (see `agentrl show --help`)"),
        (["export", "x", "--format", "csv"], "argument --format: invalid choice: 'csv'"),
        (["doctor", "x"], "unrecognized arguments: x (see `agentrl doctor --help`)"),
        (["gc", "--all"], "unrecognized arguments: --all (see `agentrl gc --help`)"),
        (["train", "--lr"], "--lr needs a value"),
        (["train", "--lr", "--steps", "3"], "--lr needs a value"),
        (["train", "--algo", "grop"], "Did you mean 'grpo'?"),
        (["config", "--env", "ges"], "Did you mean 'guess'?"),
        (["config", "--env", "guess", "--env.hihg", "3"], "Did you mean 'env.high'?"),
        (["train", "--config", "none.toml"], "cannot read the configuration file none.toml"),
        (["train", "--config", ""], "argument --config: the path is empty (see `agentrl train --help`)"),
        (["train", "--config"], "argument --config: expected one argument"),
        (["show", ""], "argument RUN: the path is empty"),
        (["show", "nowhere"], "no run in nowhere"),
        (["resume", "nowhere"], "no run in nowhere"),
        (["train", "--env", "tests"], "To use the one in this folder, write ./tests."),
        (["train", "--lr", "1e5"], "learner.lr must be less than or equal to 1, got 100000.0 (--lr)"),
        (["train", "--steps", "0"], "steps must be greater than or equal to 1, got 0 (--steps)"),
        (["eval", "--lr", "1e-5", "--steps=3"], "--lr, --steps has no effect in an evaluation"),
        (["eval", "--rollout.temperature", "0.5"], "--rollout.temperature has no effect in an evaluation"),
        (["eval", "--reward.placement", "colocate"], "--reward.placement has no effect in an evaluation"),
        (["eval", "--engine.placement", "colocate"], "--engine.placement has no effect in an evaluation"),
        (["eval", "--eval.tasks", "0"], "eval.tasks is 0, so there is nothing to score"),
        (["eval", "--algos", "x"], "unknown key 'algos'"),
    ],
)
def test_an_error_is_one_message_on_stderr_and_exit_code_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(ConfigError):
        main(["train", "--lr", "-1", "--debug"])


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell starts what it puts in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_before_a_run_begins_is_told_and_exits_with_its_code(
    number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(words: list[str]) -> int:
        signal.raise_signal(number)
        return 0

    monkeypatch.setattr(entry, "_run", interrupted)
    before = signal.getsignal(signal.SIGTERM)
    assert main(["train"]) == code
    assert capsys.readouterr().err == f"stopped by {number.name}\n"
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_run_that_a_signal_ended_says_so_and_exits_with_its_code(
    name: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def stopped() -> None:
        raise Stopped(name)

    monkeypatch.setattr(entry, "_run", lambda _: run_until_stopped(stopped()))
    assert main(["train"]) == code
    assert capsys.readouterr().err == f"stopped by {name}\n"


@pytest.mark.parametrize(
    ("error", "text"), [(RunError("no memory"), "error: no memory"), (Stopped("SIGINT"), "stopped by SIGINT")]
)
def test_what_failed_after_the_error_is_shown_below_it(
    error: Exception, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def ended() -> None:
        error.add_note("closing failed too: the disk is full")
        raise error

    monkeypatch.setattr(entry, "_run", lambda _: run_until_stopped(ended()))
    main(["train"])
    assert capsys.readouterr().err == f"{text}\nclosing failed too: the disk is full\n"


def test_a_reader_that_goes_away_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    answer = subprocess.run(agentrl("config", "--env", "guess"), stdout=writing, stderr=subprocess.PIPE, timeout=60)
    os.close(writing)
    assert (answer.returncode, answer.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("words", "own", "overrides"),
    [
        (["--lr", "1e-6"], [], [("lr", "1e-6")]),
        (["--learner.lr=-1"], [], [("learner.lr", "-1")]),
        (["--env.text", "-x"], [], [("env.text", "-x")]),
        (["--env.text=--x=y"], [], [("env.text", "--x=y")]),
        (["--config", "a.toml", "--steps", "3"], ["--config", "a.toml"], [("steps", "3")]),
        (["--config=a.toml"], ["--config=a.toml"], []),
    ],
)
def test_flags_are_split_from_the_rest(words: list[str], own: list[str], overrides: list[tuple[str, str]]) -> None:
    assert split(words) == (own, overrides)


def test_config_prints_a_file_that_gives_the_same_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--env", "guess", "--env.high", "20", "--lr", "1e-6"]) == 0
    first = capsys.readouterr().out
    file = tmp_path / "run.toml"
    file.write_text(first)
    assert tomllib.loads(first)["env"]["high"] == 20
    assert main(["config", "--config", str(file)]) == 0
    assert tomllib.loads(capsys.readouterr().out) == tomllib.loads(first)


def test_a_printed_configuration_moves_to_another_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.toml"
    monkeypatch.setattr("agentrl.cli.config.hardware", lambda: LAPTOP)
    assert main(["config", "--env", "guess", "--engine.threads", "1"]) == 0
    file.write_text(capsys.readouterr().out)
    there = resolve_run(load(file), FOUR_GPUS)
    straight = resolve_run(load(None, of_flags([("env", "guess"), ("engine.threads", "1")])), FOUR_GPUS)
    plugins = {"env", "algorithm"}
    assert there.model_dump(exclude=plugins) == straight.model_dump(exclude=plugins)
    assert (there.device, there.engine.threads) == ("cuda", 1)


@pytest.mark.parametrize("command", ["train", "config"])
def test_a_word_without_a_flag_names_the_environment(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "gess"]) == 2
    assert "Did you mean 'guess'?" in capsys.readouterr().err
    assert main([command, "guess", "--env", "math"]) == 2
    assert "'guess' and --env math both name the env: leave one out" in capsys.readouterr().err


def test_a_word_without_a_flag_names_the_model_that_is_scored(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "./none", "--env", "guess"]) == 2
    assert "model './none': there is no such folder" in capsys.readouterr().err


def test_python_runs_the_package() -> None:
    answer = subprocess.run([sys.executable, "-m", "agentrl", "trian"], capture_output=True, text=True, timeout=60)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "Did you mean 'train'?" in answer.stderr


def test_config_tells_where_each_value_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    main(["config", "--env", "guess", "--env.high", "20", "--lr", "1e-6"])
    lines = capsys.readouterr().out.splitlines()
    told = {line.split(" = ")[0]: line for line in lines if " = " in line}
    assert "[--lr] peak learning rate" in told["lr"]
    assert "[--env.high]" in told["high"]
    assert "[chosen for this machine]" in told["# device"]
    assert "[default]" in told["beta1"]


def test_config_prints_the_keys_of_the_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    main(["config", "--env", "guess", "--algo", "gspo", "--algorithm.clip_low", "0.1"])
    text = capsys.readouterr().out
    assert tomllib.loads(text)["algorithm"] == {"name": "gspo", "clip_low": 0.1}
    lines = {line.split(" = ")[0]: line for line in text.splitlines() if " = " in line}
    assert "[--algorithm.clip_low] clip of the ratio" in lines["clip_low"]
    assert "[default] policy loss of a token: ppo_clip, " in lines["# loss"]
    assert "[no effect without algorithm.kl_coef above 0]" in lines["# kl_in"]
    assert "[no effect without an algorithm with a critic, such as ppo]" in lines["# clip_value"]
    assert "[default]" in lines["beta1"]
    assert main(["config", "--env", "guess", "--algorithm.kl_in", "reward"]) == 2
    assert "algorithm.kl_in has no effect without algorithm.kl_coef above 0: leave it out" in capsys.readouterr().err


@pytest.mark.parametrize("changed", [("--algorithm.loss", "cispo"), ("--algo", "dr_grpo")], ids=" ".join)
def test_a_printed_configuration_pins_no_default_of_its_algorithm(
    changed: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.toml"
    main(["config", "--env", "guess", "--algorithm.kl_coef", "0.1"])
    file.write_text(capsys.readouterr().out)
    flags = [(changed[0].removeprefix("--"), changed[1]), ("algorithm.kl_in", "reward")]
    straight = algorithm_of(load(None, of_flags([("algorithm.kl_coef", "0.1"), *flags]))).config
    assert algorithm_of(load(file, of_flags(flags))).config == straight
    assert straight.kl_estimator == "k1"


def test_config_names_the_values_of_what_is_enumerated(capsys: pytest.CaptureFixture[str]) -> None:
    main(["config", "--env", "guess"])
    lines = {line.removeprefix("# ").split(" = ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["placement"].endswith("; values: colocate, separate")
    assert lines["on_stale"].endswith("; values: drop, wait")
    assert lines["zero_stage"].endswith("; values: 0, 1, 2, 3")
    assert "values:" not in lines["steps"]


def test_config_comments_out_what_nothing_would_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = []
    for machine in (LAPTOP, FOUR_GPUS):
        monkeypatch.setattr("agentrl.cli.config.hardware", lambda machine=machine: machine)
        main(["config", "--env", "guess"])
        idle.append([line for line in capsys.readouterr().out.splitlines() if "[no effect without" in line])
        assert all(line.startswith("# ") for line in idle[-1])
    keys = [{line.split()[1] for line in lines} for lines in idle]
    assert keys[0] - keys[1] == {"gpu_memory_utilization", "offload"}
    assert keys[1] - keys[0] == {"kv_cache_gib"}
    assert "max_filtered_batches" in keys[0]


def test_doctor_says_what_is_there_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) in (0, 1)
    text = capsys.readouterr().out
    for name in ("cores", "memory", "GPUs", "torchvision trap", "docker", "bubblewrap", "environments"):
        assert name in text
    assert ("MISSING" in text or "\n-  " in text) == ("→" in text)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = synthetic_run(tmp_path_factory.mktemp("shown") / "alone/run", steps=2)
    folder.config.write_text(f'[model]\nname = "{tiny_model(folder.path / "model")}"\n')
    return folder.path


def test_a_folder_of_runs_names_them(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(run_folder.parent)]) == 2
    assert f"Known: {run_folder}" in capsys.readouterr().err


def test_an_evaluation_is_not_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.toml").write_text('[env]\nname = "guess"\n')
    assert main(["resume", str(tmp_path)]) == 2
    assert f"nothing was trained in {tmp_path}: start with `agentrl train --config" in capsys.readouterr().err


DRIVES = "import sys; from pathlib import Path; from agentrl.records.folder import run_lock\n"
DRIVES += "with run_lock(Path(sys.argv[1])): print(flush=True); sys.stdin.read()"


class ReachedError(Exception):
    """What must not be asked any more was asked."""


@pytest.fixture
def going_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run of two steps, both done; whatever would start raises ReachedError."""

    def reached(*_: object) -> None:
        raise ReachedError

    monkeypatch.setattr("agentrl.training.inputs.RunInputs.for_resume", reached)
    folder = synthetic_run(tmp_path / "run", steps=2)
    folder.config.write_text('steps = 2\n[env]\nname = "guess"\n')
    (folder.checkpoints / "step-000002").mkdir(parents=True)
    return folder


@pytest.mark.parametrize(("command", "last"), [("resume", ["--steps", "9"]), ("train", ["--out"])])
def test_a_run_that_is_going_on_is_left_alone(
    going_on: RunFolder, command: str, last: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(going_on.path)
    words = [path, *last] if command == "resume" else ["--env", "guess", *last, path]
    with subprocess.Popen(
        [sys.executable, "-c", DRIVES, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as driver:
        assert driver.stdout is not None
        driver.stdout.readline()
        assert main([command, *words]) == 2
        assert f"{path} is in use by process {driver.pid}" in capsys.readouterr().err
        assert driver.poll() is None
    with pytest.raises(ReachedError):
        main(["resume", path, "--steps", "9"])


@pytest.mark.parametrize("flags", [[], ["--steps", "1"]])
def test_a_run_whose_steps_are_done_is_left_as_it_is(
    going_on: RunFolder, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = going_on.summary.read_bytes()
    assert main(["resume", str(going_on.path), *flags]) == 2
    assert "all 2 steps are done; continue with --steps N (N > 2)" in capsys.readouterr().err
    assert going_on.summary.read_bytes() == before


@pytest.mark.parametrize("ended", ["SIGTERM", None])
def test_a_run_that_lacks_its_last_evaluation_goes_on(going_on: RunFolder, ended: str | None) -> None:
    text = going_on.summary.read_text()
    going_on.summary.unlink()
    if ended:
        going_on.summary.write_text(text.replace("finished 30 steps", ended))
    with pytest.raises(ReachedError):
        main(["resume", str(going_on.path)])


def test_export_writes_a_line_for_each_trajectory(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run_folder), "--out", str(tmp_path / "out.jsonl")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out.jsonl'}\n"
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(rows) == len(list(Run(run_folder).trajectories())) > 0
    assert main(["export", str(run_folder), "--evaluation", "77"]) == 2
    assert "has no evaluations" in capsys.readouterr().err


def test_show_lists_trajectories(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(run_folder)]) == 0
    text = capsys.readouterr().out
    assert "0-0" in text
    assert "trained" in text


def test_show_tells_everything_about_one(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(run_folder), "0-0"]) == 0
    text = capsys.readouterr().out
    for words in ("sample 0-0, attempt 0", "assistant", "reward", "version"):
        assert words in text


def test_show_works_when_the_model_is_gone(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunFolder(run_folder).config.write_text('[model]\nname = "/nowhere/model"\n')
    assert main(["show", str(run_folder), "0-0"]) == 0
    assert "sample 0-0" in capsys.readouterr().out


@pytest.mark.parametrize(("sample", "words"), [("999-9", "no trajectory of sample 999-9"), ("x", "is not a sample")])
def test_show_refuses_a_sample_that_is_not_there(
    run_folder: Path, sample: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(run_folder), sample]) == 2
    assert words in capsys.readouterr().err


def test_a_sample_that_is_not_there_costs_no_tokenizer(run_folder: Path) -> None:
    RunFolder(run_folder).config.write_text(f'[model]\nname = "{run_folder / "model"}"\n')
    code = (
        "import sys\nfrom agentrl.cli.main import main\nmain()\n"
        f"print('heavy', [m for m in {HEAVY} if m in sys.modules])"
    )
    for sample in ("foo", "999-9"):
        command = [sys.executable, "-c", code, "show", str(run_folder), sample]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert answer.stdout == "heavy []\n"


def test_gc_tells_what_it_removed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    announced([EntryPoint("a", "tests.unit.cli.test_command:two_things", CLEANUPS_GROUP)], monkeypatch)
    assert main(["gc"]) == 0
    assert capsys.readouterr().out == "a container removed\na folder removed\n"


def test_gc_with_nothing_to_do_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    announced([], monkeypatch)
    assert main(["gc"]) == 0
    assert capsys.readouterr().out == "nothing was left behind\n"


def test_a_broken_cleanup_is_told_and_stops_no_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [
        EntryPoint("broken", "tests.unit.cli.test_command:nowhere", CLEANUPS_GROUP),
        EntryPoint("failing", "tests.unit.cli.test_command:failing", CLEANUPS_GROUP),
        EntryPoint("a", "tests.unit.cli.test_command:two_things", CLEANUPS_GROUP),
    ]
    announced(points, monkeypatch)
    assert main(["gc"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("broken: its cleanup tests.unit.cli.test_command:nowhere is broken")
    assert lines[1] == "failing: its cleanup tests.unit.cli.test_command:failing is broken: PackagesOwnError: no folder"
    assert lines[2:] == ["a container removed", "a folder removed"]


def test_gc_ends_what_a_killed_run_left_and_touches_none_that_runs(
    run_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    announced([], monkeypatch)
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    ProcessRegistry(run_folder).register("engine 0", child.pid)
    with run_lock(run_folder):
        assert main(["gc", str(run_folder)]) == 2
    assert "is in use by process" in capsys.readouterr().err
    assert child.poll() is None
    assert main(["gc", str(run_folder)]) == 0
    assert capsys.readouterr().out == f"engine 0 (pid {child.pid}) of {run_folder} ended\n"
    assert child.wait(10) == -signal.SIGTERM
    assert main(["gc", str(run_folder.parent / "none")]) == 2
    assert "no run in" in capsys.readouterr().err


class PackagesOwnError(Exception):
    """An error that agentrl knows nothing of."""


def failing() -> list[str]:
    raise PackagesOwnError("no folder")


def two_things() -> list[str]:
    return ["a container removed", "a folder removed"]


def announced(points: list[EntryPoint], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [p for p in points if p.group == group])
