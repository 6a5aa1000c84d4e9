"""What a run does when its processes are killed, when it is told to stop, and when what it was given is no good."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrl.records.folder import RunFolder
from agentrl.records.restarts import read_restarts
from tests.real.runs import BATCH, PROMPTS, Run, Stage, everybody_waits, is_running, lawful, pass_a_step, refused
from tests.tiny import tiny_model

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

STOP_S = 60.0
RAISING_ENV = """
from agentrl.env import Env, Task, reward

class RaisingEnv(Env):
    def tasks(self, split):
        return [Task(str(n), n) for n in range(8)]

    def setup(self, task, ctx):
        raise RuntimeError("the simulator is not installed")

    @reward
    def luck(self, ctx):
        return 0.0
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few MiB, mounted where the run folder will be."""
    disk = tmp_path / "run"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("a disk of its own can only be mounted by root, where the kernel lets it")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


# ------------------------------------------------------------------------------------------------ killed, and gone on


def test_a_killed_worker_and_killed_engines_are_replaced_and_nothing_is_lost(
    run: Run, stage: Stage, model: Path
) -> None:
    run.train(model, *stage.flags, "--steps", "4")
    everybody_waits(run, stage)

    os.kill(run.pid("rollout worker 0"), signal.SIGKILL)
    stage.release()
    run.until(lambda: len(run.attempts("lost")) == BATCH)
    everybody_waits(run, stage)

    # vLLM's EngineCore, and then the Ray actor around it, each with a request of every episode in flight
    for step, process in enumerate((-1, -2), 1):
        core = run.pid("engine 0")
        victim = run.pid("engine 0", process)
        os.kill(core, signal.SIGSTOP)
        stage.release()
        os.kill(victim, signal.SIGKILL)
        everybody_waits(run, stage)
        assert len(run.attempts("trained")) == step * BATCH

    # the EngineCore while the learner learns: the publication finds no engine, and reaches the new one later
    learner = run.pid("learner rank 0")
    os.kill(learner, signal.SIGSTOP)
    stage.release()
    run.until(lambda: len(run.attempts("finished")) == BATCH)
    os.kill(run.pid("engine 0"), signal.SIGKILL)
    run.until(lambda: run.said.count("engine 0 is lost") == 3)
    os.kill(learner, signal.SIGCONT)
    everybody_waits(run, stage)
    stage.release()

    assert run.end() == 0, run.said
    counts = lawful(run).counts
    assert [r.process for r in read_restarts(RunFolder(run.path))] == ["rollout worker 0", *["engine 0"] * 3]
    assert run.summary().restarts == 4
    assert (counts.trained, counts.lost, counts.dispatched) == (4 * BATCH, BATCH, 5 * BATCH)
    assert {attempt for (group, _), attempt in run.attempts("trained") if group < PROMPTS} == {1}
    assert run.remains() == []


def test_a_run_ended_again_and_again_goes_on_and_trains_nothing_twice(run: Run, stage: Stage, model: Path) -> None:
    run.train(model, *stage.flags, "--steps", "4", "--checkpoint.every", "1")
    pass_a_step(run, stage, 1)

    # kill -9 of the driver in the middle of the second rollout: two samples are finished, two in flight
    everybody_waits(run, stage)
    stage.release(2)
    run.until(lambda: len(run.attempts("finished")) == 2)
    finished, in_flight = run.attempts("finished"), run.attempts("in_flight")
    run.kill()
    stage.release()

    run.resume()
    run.until(lambda: len(stage.waiting()) == 2)
    assert run.attempts("lost") == in_flight
    assert run.attempts("finished") == finished

    # kill -9 of the driver in the middle of a step: its learner never ends it
    os.kill(run.pid("learner rank 0"), signal.SIGSTOP)
    stage.release()
    run.until(lambda: len(run.attempts("finished")) == BATCH)
    finished = run.attempts("finished")
    run.kill()

    run.resume()
    run.until(lambda: "step-000002" in run.checkpoints())
    assert finished <= run.attempts("trained")

    # Ctrl-C while episodes are in flight
    everybody_waits(run, stage)
    stopped = run.attempts("in_flight")
    run.interrupt()
    assert stopped_by(run, signal.SIGINT)
    assert run.attempts("cancelled") == stopped
    stage.release()

    run.resume()
    pass_a_step(run, stage, 3)
    assert {sample for sample, _ in stopped} <= {sample for sample, _ in run.attempts("trained")}

    # SIGTERM
    everybody_waits(run, stage)
    run.process.terminate()
    assert stopped_by(run, signal.SIGTERM)
    stage.release()

    # a checkpoint that cannot be read
    checkpoint = RunFolder(run.path).checkpoints / "step-000003"
    for file in checkpoint.rglob("rank-*.safetensors"):
        os.truncate(file, file.stat().st_size // 2)
    error = refused(run.resume())
    assert "step-000003" in error
    assert "Delete it" in error

    # as the message says: it goes on from the one before, and what step 3 trained is trained again, by other ranks
    shutil.rmtree(checkpoint)
    run.resume("--steps", "5", "--learner.ranks", "2", "--learner.zero_stage", "3")
    pass_a_step(run, stage, 4)
    pass_a_step(run, stage, 5)
    assert run.end() == 0, run.said
    summary = lawful(run)
    assert (summary.counts.trained, summary.counts.rolled_back) == (5 * BATCH, BATCH)
    assert run.remains() == []


def stopped_by(run: Run, number: signal.Signals) -> bool:
    """Whether the command ends in time, says how to go on, and leaves nothing behind."""
    began = time.monotonic()
    code = run.end()
    seconds = time.monotonic() - began
    assert code == 128 + number, run.said
    assert seconds < STOP_S
    assert f"go on with `agentrl resume {run.path}`" in " ".join(run.said.split())
    assert run.remains() == []
    lawful(run)
    return True


def test_a_run_that_is_told_to_stop_while_it_starts_leaves_nothing(run: Run, stage: Stage, model: Path) -> None:
    run.train(model, *stage.flags)
    cores = run.until(run.engine_cores)
    run.process.terminate()
    assert stopped_by(run, signal.SIGTERM)
    assert not any(is_running(core) for core in cores)


def test_a_rank_that_dies_in_a_step_is_named_and_the_run_can_be_resumed(run: Run, stage: Stage, model: Path) -> None:
    run.train(model, *stage.flags, "--steps", "1", "--learner.ranks", "2")
    everybody_waits(run, stage)
    rank = run.pid("learner rank 1")
    os.kill(rank, signal.SIGSTOP)
    stage.release()
    run.until(lambda: len(run.attempts("finished")) == BATCH)
    os.kill(rank, signal.SIGKILL)
    assert "learner rank 1" in refused(run, STOP_S)

    run.resume()
    assert run.end() == 0, run.said
    assert lawful(run).counts.trained == BATCH


# ------------------------------------------------------------------------------------------------ one clear error each


def test_a_full_disk_stops_the_run_with_a_clear_error(small_disk: Path, run: Run, stage: Stage, model: Path) -> None:
    run.train(model, *stage.flags, "--steps", "2", "--checkpoint.every", "1")
    pass_a_step(run, stage, 1)
    everybody_waits(run, stage)
    fill(small_disk / "filler")
    stage.release()
    error = refused(run)
    assert "full" in error or "No space left" in error
    assert str(run.path) in error

    (small_disk / "filler").unlink()
    run.resume()
    run.until(lambda: stage.waiting() or "step-000002" in run.checkpoints())
    stage.release()
    assert run.end() == 0, run.said
    assert lawful(run).counts.trained == 2 * BATCH


def fill(file: Path) -> None:
    """Write until nothing more fits on the disk."""
    with file.open("wb", buffering=0) as out:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    out.write(bytes(size))
            except OSError:
                continue


def test_an_env_that_always_raises_stops_the_run_with_its_own_exception(run: Run, tmp_path: Path, model: Path) -> None:
    env = tmp_path / "raising_env.py"
    env.write_text(RAISING_ENV)
    error = refused(run.train(model, "--env", str(env), "--steps", "2"))
    assert "RuntimeError: the simulator is not installed" in error
    assert "raising_env.py:9" in error


def test_a_line_that_does_not_parse_is_named(run: Run, tmp_path: Path, model: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text('{"question": "1 + 1", "answer": "2"}\n{"question": "1 + 2", \n')
    error = refused(run.train(model, "--env", "math", "--env.data", str(data)))
    assert f"{data}, line 2" in error or f"{data}:2" in error


def test_a_model_that_does_not_exist_is_named(run: Run, stage: Stage, tmp_path: Path) -> None:
    error = refused(run.train(tmp_path / "nothing", *stage.flags))
    assert str(tmp_path / "nothing") in error
    assert not run.path.exists()
