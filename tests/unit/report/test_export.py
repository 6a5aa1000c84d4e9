"""An export holds what was trained, exactly, for tools that know nothing of agentrl."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from agentrl.errors import ConfigError
from agentrl.records.folder import RunFolder
from agentrl.records.ledger import Ledger
from agentrl.records.store import TrajectoryStore, scan
from agentrl.report import export as module
from agentrl.report.export import export
from agentrl.types import SampleId, Trajectory
from tests.unit.records.synthetic import synthetic_run, trajectory, with_tool


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = synthetic_run(tmp_path_factory.mktemp("run"), 3)
    store = TrajectoryStore(folder.evaluated(2))
    store.append([with_tool(trajectory(0, 0))])
    store.close()
    return folder


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
        return rows
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_every_trained_sample_is_in_the_export_with_what_was_trained(
    run: RunFolder, tmp_path: Path, suffix: str
) -> None:
    exported = {(r["group"], r["member"], r["attempt"]): r for r in read(export(run.path, tmp_path / f"a.{suffix}"))}
    store = TrajectoryStore(run.trajectories)
    ledger = Ledger(run.ledger, is_read_only=True)
    trained = [row for row in ledger.rows() if row.step is not None]
    ledger.close()
    assert len(trained) > 30
    for known in trained:
        stored, row = store.read(known.sample, known.attempt), exported[*known.sample, known.attempt]
        assert (row["state"], row["step"], row["reward"]) == ("trained", known.step, stored.reward)
        assert row["messages"][-1]["content"] == stored.messages[-1]["content"]
        assert row["signals"][0]["value"] == stored.reward
        for tokens, sequence in zip(row["sequences"], stored.sequences, strict=True):
            assert tokens["ids"] == sequence.ids
            assert tokens["mask"] == sequence.mask
            assert tokens["logprobs"] == sequence.logprobs
            assert tokens["versions"] == [version and str(version) for version in sequence.versions]


def test_an_untrained_attempt_says_why_and_has_no_reward(run: RunFolder) -> None:
    rows = read(export(run.path))
    assert len(rows) == len(list(scan(run.trajectories)))
    untrained = [row for row in rows if row["state"] != "trained"]
    assert {row["state"] for row in untrained} == {"stale", "invalid"}
    assert all(row["step"] is None for row in untrained)
    assert all(row["reward"] is None for row in untrained if row["state"] == "invalid")


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_an_evaluation_is_exported_with_its_tool_calls(run: RunFolder, tmp_path: Path, suffix: str) -> None:
    [row] = read(export(run.path, tmp_path / f"e.{suffix}", evaluation=2))
    calls = row["messages"][-3]["tool_calls"]
    call = (json.loads(calls) if suffix == "parquet" else calls)[0]
    assert call["function"] == {"name": "calculator", "arguments": {"it": "6 * 7"}}
    assert row["messages"][-2] | {"content": "<42> & no more", "tool_call_id": "c1"} == row["messages"][-2]
    assert row["state"] == ""
    with pytest.raises(ConfigError, match="no evaluation after step 7, only after 2"):
        export(run.path, tmp_path / "f.jsonl", evaluation=7)


def test_a_run_that_only_evaluates_exports_its_evaluation(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.config.write_text("")
    store = TrajectoryStore(folder.evaluated(0))
    store.append([trajectory(0, 0)])
    store.close()
    assert [row["task_id"] for row in read(export(tmp_path))] == ["level1/0"]


def test_an_export_sees_what_a_run_that_is_going_has_stored(tmp_path: Path) -> None:
    folder = synthetic_run(tmp_path, 1)
    store = TrajectoryStore(folder.trajectories)
    store.append([trajectory(900, 0)])
    last = read(export(tmp_path))[-1]
    assert (last["group"], last["state"], last["step"]) == (900, "", None)
    store.close()


def test_rows_are_written_one_by_one(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[SampleId] = []
    out = tmp_path / "x.jsonl"

    def watched(folder: Path) -> Iterator[Trajectory]:
        for t in scan(folder):
            written = (tmp_path / f".{out.name}.{os.getpid()}.partial").stat().st_size
            alive.append(t.sample)
            assert len(alive) < 20 or written > 0
            yield t

    monkeypatch.setattr(module, "scan", watched)
    export(run.path, out)
    assert len(alive) == 48


def test_half_an_export_is_no_file(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def torn(folder: Path) -> Iterator[Trajectory]:
        yield next(scan(folder))
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "scan", torn)
    for suffix in ("jsonl", "parquet"):
        with pytest.raises(KeyboardInterrupt):
            export(run.path, tmp_path / f"x.{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_what_a_model_says_is_text_in_every_format(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.config.write_text("")
    hostile = "\ud800 \x00 \u2028 {\"role\": 1}\nand 'more'"
    store = TrajectoryStore(folder.evaluated(0))
    store.append([replace(trajectory(0, 0), messages=({"role": "assistant", "content": hostile},))])
    store.close()
    [stored] = scan(folder.evaluated(0))
    for suffix in ("jsonl", "parquet"):
        [row] = read(export(tmp_path, tmp_path / f"x.{suffix}"))
        assert row["messages"][0]["content"] == stored.messages[0]["content"]


def test_errors_say_what_to_do(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"no run in .*: it has no config.toml"):
        export(tmp_path)
    with pytest.raises(ConfigError, match=r"cannot write .*x.jsonl: No such file or directory; choose another --out"):
        export(run.path, tmp_path / "nowhere" / "x.jsonl")
    with pytest.raises(
        ConfigError, match=r"the suffix of .*o.csv names no format: write .jsonl or .parquet, or choose a"
    ):
        export(run.path, tmp_path / "o.csv")
    assert not (tmp_path / "o.csv").exists()
    with pytest.raises(ConfigError, match=r"unknown format 'csv'\. .*Known: jsonl, parquet"):
        export(run.path, tmp_path / "x", format="csv")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match="`pip install pyarrow`"):
        export(run.path, tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []
