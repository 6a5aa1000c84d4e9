"""The summary adds up, comes back from its file, and says in the terminal what matters."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from agentrl.errors import RunError
from agentrl.metrics.step import PhaseSeconds
from agentrl.metrics.trackers import read_steps
from agentrl.records.conservation import ConservationResult
from agentrl.records.folder import RunFolder
from agentrl.report import summary
from agentrl.report.words import duration
from tests.unit.records.synthetic import synthetic_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return synthetic_run(tmp_path_factory.mktemp("run"))


def printed(result: summary.Summary, run: RunFolder) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(summary.closing(result, run))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_it_contains_the_result_of_the_run(run: RunFolder) -> None:
    result = summary.read(run)
    assert result is not None
    assert result.before is not None
    assert result.after is not None
    assert (result.before.step, result.after.step, result.steps) == (0, 30, 30)
    assert result.after.pass_at_1.low > result.before.pass_at_1.high
    assert result.counts.dispatched == 480 == result.counts.trained + result.counts.stale + result.counts.invalid
    assert result.conservation.holds
    steps = read_steps(run)
    assert result.tokens_sampled == sum(r.action_tokens for r in steps)
    assert result.seconds.learn == pytest.approx(sum(r.seconds.learn for r in steps))
    assert result.seconds.evaluate == 36.0
    assert json.loads(run.summary.read_text())["counts"]["trained"] == result.counts.trained


def test_the_closing_words_name_score_law_and_report(run: RunFolder) -> None:
    result = summary.read(run)
    assert result is not None
    text = printed(result, run)
    for words in (
        "finished 30 steps",
        " → ",
        "holds",
        "stale",
        " sampled, ",
        "report.html",
        "rollout",
        "2 processes replaced",
    ):
        assert words in text
    broken = dataclasses.replace(
        result, conservation=ConservationResult(("sample 1-1: trained 2 times, in steps [1, 2]",))
    )
    assert "BROKEN: 1 violations, first: sample 1-1" in printed(broken, run)


def test_the_closing_words_name_the_checkpoint_with_the_best_evaluation(run: RunFolder) -> None:
    result = summary.read(run)
    assert result is not None
    assert "best checkpoint" not in printed(result, run)
    assert result.after is not None
    best = dataclasses.replace(result.after, step=20)
    words = " ".join(printed(dataclasses.replace(result, best=best), run).split())
    assert f"best checkpoint {run.checkpoints / 'step-000020'} (pass@1 {best.pass_at_1})" in words


def test_a_run_without_evaluation_or_steps_has_a_summary(run: RunFolder, tmp_path: Path) -> None:
    result = summary.read(run)
    assert result is not None
    empty = summary.summarize(
        "stopped by Ctrl-C", PhaseSeconds(start=3.0), {}, [], [], result.counts, result.conservation, 1, {}
    )
    folder = RunFolder(tmp_path)
    summary.write(folder, empty)
    assert summary.read(folder) == empty
    text = printed(empty, folder)
    assert "stopped by Ctrl-C" in text
    assert not re.search("^tokens ", text, re.M)
    assert summary.read(RunFolder(tmp_path / "none")) is None


def test_a_file_that_cannot_be_written_is_named_and_the_old_one_stays(run: RunFolder, tmp_path: Path) -> None:
    result = summary.read(run)
    assert result is not None
    with pytest.raises(RunError, match=r"cannot write .*summary\.json.*Make room"):
        summary.write(RunFolder(tmp_path / "none"), result)
    assert not list(run.path.glob(".*"))


def test_an_evaluation_with_invalid_episodes_says_so_at_the_end(run: RunFolder) -> None:
    result = summary.read(run)
    assert result is not None
    assert result.after is not None
    after = dataclasses.replace(result.after, invalid=1, tasks_at_1=24, tasks_at_k=24, cause="right: IndexError")
    text = printed(dataclasses.replace(result, after=after), run)
    assert "after step 30" in text
    assert "191 of 192 episodes valid; right: IndexError" in text


def test_the_closing_words_account_for_all_of_the_time(run: RunFolder) -> None:
    result = summary.read(run)
    assert result is not None
    assert result.seconds.total == result.seconds_total
    line = next(line for line in printed(result, run).splitlines() if line.startswith("time"))
    assert "start 40 s (engines 31 s, learner 22 s, ray 5 s)" in line
    named = re.findall(r"(?:: |, )([a-z]+) (\d+) s", re.sub(r"\(.*?\)", "", line))
    assert {name for name, _ in named} == {
        "start",
        "rollout",
        "learn",
        "publish",
        "evaluate",
        "checkpoint",
        "close",
        "other",
    }
    assert sum(int(value) for _, value in named) == pytest.approx(result.seconds_total, abs=4)
    again = dataclasses.replace(result, incarnations=2)
    assert any(line.startswith("time since the resume") for line in printed(again, run).splitlines())


def test_durations_are_readable() -> None:
    assert [duration(s) for s in (8, 200, 7500)] == ["8 s", "3 min 20 s", "2 h 05 min"]
