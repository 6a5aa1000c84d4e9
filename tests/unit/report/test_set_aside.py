"""Tasks without a signal are counted in the summary and listed on the report's page."""

from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path

from rich.console import Console

from agentrl.records.folder import RunFolder
from agentrl.records.ledger import Ledger
from agentrl.report import summary
from agentrl.report.html import write_report
from agentrl.types.outcomes import GroupOutcome
from tests.unit.records.synthetic import SyntheticRun


def outcomes() -> list[GroupOutcome]:
    """Task 0 is never solved, 1 always, the verifier of 2 fails, and 3 has a signal."""
    solved = {0: (8, 0.0, 0), 1: (8, 8.0, 0), 2: (0, 0.0, 8), 3: (8, 3.0, 0)}
    return [
        GroupOutcome(4 * visit + task, "sums", task, f"<b>{task}+1", samples, right, invalid, 1)
        for visit in range(2)
        for task, (samples, right, invalid) in solved.items()
    ]


def test_the_report_lists_tasks_without_a_signal(tmp_path: Path) -> None:
    folder = SyntheticRun(RunFolder(tmp_path / "run"), steps=2).play()
    assert "Tasks without a signal" not in write_report(folder).read_text()
    with closing(Ledger(folder.ledger)) as ledger:
        for outcome in outcomes():
            ledger.observed(outcome)
    page = write_report(folder).read_text()
    assert "Tasks without a signal" in page
    for number, why in enumerate(("never solved", "always solved", "verifier fails")):
        assert why in page
        assert f"&lt;b&gt;{number}+1" in page, "a task's id is escaped"
    assert "3+1" not in page


def test_the_summary_counts_them(tmp_path: Path) -> None:
    folder = SyntheticRun(RunFolder(tmp_path / "run"), steps=2).play()
    known = summary.read(folder)
    assert known is not None
    found = summary.summarize(
        "finished 2 steps", known.seconds, {}, [], [], known.counts, known.conservation, 1, {}, outcomes=outcomes()
    )
    assert found.set_aside == {"never solved": 1, "always solved": 1, "verifier fails": 1}
    console = Console(file=io.StringIO(), width=200, record=True)
    console.print(summary.closing(found, folder))
    text = console.export_text()
    assert "tasks without a signal" in text
    assert "1 never solved, 1 always solved, 1 verifier fails" in text
