"""Progress: a panel in a terminal, plain lines elsewhere."""

from __future__ import annotations

import dataclasses
import io
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from agentrl.metrics.step import StepRecord
from agentrl.metrics.trackers import read_evaluations, read_steps, step_scalars
from agentrl.records.folder import RunFolder
from agentrl.report import summary, terminal
from agentrl.report.curves import learning
from agentrl.report.terminal import TerminalView, sparkline
from agentrl.report.words import step_words
from tests.unit.records.synthetic import synthetic_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return synthetic_run(tmp_path_factory.mktemp("run"), 12)


def view(is_terminal: bool, steps: int = 12) -> tuple[TerminalView, Callable[[], str]]:
    out = io.StringIO()
    console = Console(
        file=out, force_terminal=is_terminal, width=120, height=40, color_system=None, legacy_windows=False
    )
    return TerminalView(steps, console), out.getvalue


def test_without_a_terminal_each_step_is_one_plain_line(run: RunFolder) -> None:
    shown, text = view(False)
    shown.start("agentrl trains math on this machine.")
    shown.timer.enter("rollout")
    for record in read_steps(run):
        shown.step(record)
    shown.evaluation(read_evaluations(run)[-1])
    shown.close(summary.read(run), run)
    lines = text().splitlines()
    steps = [line for line in lines if line.startswith("step ")]
    assert len(steps) == 12
    assert steps[0].startswith("step 1/12 · reward")
    assert steps[-1].startswith("step 12/12")
    assert "left" in steps[0]
    assert "left" not in steps[-1]
    assert any(line.startswith("evaluation after step 12 · pass@1 0.") for line in lines)
    assert "\x1b" not in text()
    assert "conservation law" in text()


def test_a_phase_that_takes_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "QUIET_S", 0.01)
    said = threading.Event()

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            said.set() if "still in the phase evaluate · " in text else None
            return super().write(text)

    shown = TerminalView(12, Console(file=Out(), width=120))
    shown.start("A run.")
    shown.timer.enter("evaluate")
    try:
        assert said.wait(20)
    finally:
        shown.close()


def test_what_runs_is_a_line_of_its_own_however_long_its_folder(tmp_path: Path) -> None:
    shown, text = view(False)
    shown.start(f"The run's folder is /{'long/' * 40}run.")
    assert text() == f"The run's folder is /{'long/' * 40}run.\n"


def test_a_step_without_a_signal_says_so_and_shows_no_mean_of_nothing(run: RunFolder, tmp_path: Path) -> None:
    idle = dataclasses.replace(read_steps(run)[-1].learner, meters={}, optimizer_steps=0, skipped_steps=1)
    record = dataclasses.replace(read_steps(run)[-1], learner=idle)
    line = step_words(record, 12)
    assert "no update: all rewards of each group are equal" in line
    assert "entropy" in line  # of all sampled tokens, whatever was learned from them
    assert "KL" not in line
    assert "learned" not in line
    assert "learner/entropy" not in step_scalars(record)
    assert step_scalars(record)["learner/skipped_steps"] == 1
    assert "Entropy" in [card.title for card in learning([record], []).small]


def test_a_gradient_that_is_not_finite_is_reported(run: RunFolder) -> None:
    learner = dataclasses.replace(read_steps(run)[-1].learner, optimizer_steps=0, nonfinite_steps=1)
    record = dataclasses.replace(read_steps(run)[-1], learner=learner)
    assert "no update: the gradient was not finite" in step_words(record, 12)
    assert step_scalars(record)["learner/nonfinite_steps"] == 1


def test_in_a_terminal_the_panel_shows_progress_and_notes_stay_above(run: RunFolder) -> None:
    shown, text = view(True)
    shown.start("agentrl trains math on this machine.")
    shown.evaluation(read_evaluations(run)[0])
    for record in read_steps(run)[:5]:
        shown.step(record)
    shown.timer.enter("learn")
    shown.note("engine 0 died: started again")
    assert shown._live is not None
    shown._live.refresh()
    shown.close()
    for words in (
        "step 5/12",
        "reward",
        "staleness",
        "tok/s sampled",
        "left",
        "learn · 0 s",
        "engine 0 died",
        "held-out",
    ):
        assert words in text()
    assert "step 1/12 ·" not in text()


def test_close_restores_the_terminal_and_may_be_called_twice() -> None:
    shown, text = view(True)
    shown.start("hello")
    shown.close()
    shown.close()
    assert text().count("\x1b[?25l") == text().count("\x1b[?25h") == 1


def test_time_left_follows_the_recent_pace(run: RunFolder) -> None:
    shown, _ = view(False, steps=20)
    assert shown.left_s() is None
    records = read_steps(run)
    for record in records:
        shown.step(record)
    pace = sum(r.seconds.total for r in records[-10:]) / 10
    assert shown.left_s() == pytest.approx(8 * pace)


def test_a_note_cannot_steer_the_terminal() -> None:
    shown, text = view(False)
    shown.note("the env said \x1b[2J\x07 [bold]hello[/bold]")
    assert "\x1b" not in text()
    assert "[bold]hello[/bold]" in text()


def test_sparklines_go_from_lowest_to_highest() -> None:
    assert sparkline([0.0, 1.0, 0.5]) == "▁█▅"
    assert sparkline([1.0]) == ""
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([0.0, float("nan"), 1.0]) == "▁█"
    assert len(sparkline([random.random() for _ in range(99)])) == 32


def test_dropped_samples_are_shown(run: RunFolder, tmp_path: Path) -> None:
    shown, text = view(False)
    record: StepRecord = dataclasses.replace(read_steps(run)[0], stale=3, invalid=2, filtered=8)
    shown.step(record)
    assert "2 invalid · 3 stale · 8 filtered" in text()
