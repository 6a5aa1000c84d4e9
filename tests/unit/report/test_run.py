"""`agentrl.Run`: a run's folder as typed objects."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentrl.errors import ConfigError, RunError
from agentrl.records.folder import RunFolder
from agentrl.records.ledger import Ledger, State
from agentrl.records.store import TrajectoryStore
from agentrl.report.html import write_report
from agentrl.report.run import Run, flat
from tests.unit.records.synthetic import request, synthetic_run, trajectory


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return synthetic_run(tmp_path_factory.mktemp("run"), 3)


def test_a_run_is_read_as_typed_objects(folder: RunFolder) -> None:
    run = Run(str(folder.path))
    assert run.config.env[0].name == "math"
    assert [record.step for record in run.steps] == [1, 2, 3]
    assert [record.step for record in run.evaluations] == [0, 3]
    assert run.summary is not None
    assert run.summary.counts.trained == sum(row.state is State.TRAINED for row in run.attempts)
    assert [t.sample for t in run.trajectories()] == [row.sample for row in run.attempts]
    assert run.report == write_report(folder)
    assert run.checkpoint is None
    (folder.checkpoints / "step-000002").mkdir(parents=True)
    assert (run.checkpoint, run.best_checkpoint) == (folder.checkpoints / "step-000002", None)
    (folder.checkpoints / "step-000003").mkdir()
    assert run.best_checkpoint == folder.checkpoints / "step-000003"
    assert repr(run) == f"Run({str(folder.path)!r})"


def test_a_run_that_is_going_is_read_as_far_as_it_is(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.config.write_text("steps = 3\n")
    run = Run(tmp_path)
    assert (run.steps, run.evaluations, run.summary, run.attempts, list(run.trajectories())) == ([], [], None, [], [])
    ledger, store = Ledger(folder.ledger), TrajectoryStore(folder.trajectories)
    ledger.begin_incarnation()
    ledger.dispatched([request(trajectory(0, 0).sample)])
    store.append([trajectory(0, 0)])
    assert [row.state for row in run.attempts] == [State.IN_FLIGHT]
    assert [t.sample for t in run.trajectories()] == [(0, 0)]
    store.close()
    ledger.close()


def test_reading_changes_nothing(folder: RunFolder) -> None:
    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}

    before = files()
    run = Run(folder.path)
    read = (run.config, run.steps, run.evaluations, run.summary, run.attempts, list(run.trajectories()), run.checkpoint)
    assert all(part is not None for part in read[:6])
    assert files() == before


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, folder: RunFolder) -> None:
    with pytest.raises(ConfigError, match=r"no run in .*: it has no config.toml"):
        Run(tmp_path)
    with pytest.raises(ConfigError, match=r"has no evaluations$"):
        Run(folder.path).trajectories(evaluation=3)


def test_a_path_or_step_of_another_type_is_refused(folder: RunFolder) -> None:
    with pytest.raises(ConfigError, match="argument path must be a non-empty path, got None"):
        Run(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="argument path must be a non-empty path, got ''"):
        Run("")
    with pytest.raises(ConfigError, match="evaluation must be the number of a step, got 'x'"):
        Run(folder.path).trajectories("x")  # type: ignore[arg-type]


def test_a_damaged_summary_is_named(folder: RunFolder, tmp_path: Path) -> None:
    RunFolder(tmp_path).config.touch()
    RunFolder(tmp_path).summary.write_bytes(folder.summary.read_bytes()[:100])
    with pytest.raises(RunError, match=r"summary.json cannot be read \(.*\): delete it"):
        assert Run(tmp_path).summary


def test_a_frame_without_pandas_says_what_to_install(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="`pip install pandas`"):
        Run(folder.path).frame("steps")


def test_a_frame_has_a_row_for_each_item(folder: RunFolder) -> None:
    pytest.importorskip("pandas")
    run = Run(folder.path)
    assert list(run.frame("steps")["learner.lr"]) == [2e-5] * 3
    assert list(run.frame("evaluations")["pass_at_1.mean"]) == [record.pass_at_1.mean for record in run.evaluations]
    assert len(run.frame("trajectories")) == len(run.attempts)
    for table in ("metrics", None, 3):
        with pytest.raises(ConfigError, match=f"unknown table {table!r}. .*Known: evaluations, steps, trajectories"):
            run.frame(table)  # type: ignore[arg-type]


def test_columns_of_nested_records_are_named_by_their_path() -> None:
    assert flat({"step": 1, "learner": {"loss": 0.5}, "signals": {}, "samples": [{"a": 1}]}) == {
        "step": 1, "learner.loss": 0.5, "samples": [{"a": 1}],
    }  # fmt: skip
