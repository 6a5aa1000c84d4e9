"""How every run ends, well or not: its law is checked, its summary and report are written, its last words said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agentrl.metrics.timer import PhaseTimer
from agentrl.metrics.trackers import read_evaluations, read_steps
from agentrl.records.folder import RunFolder
from agentrl.records.journal import RunJournal
from agentrl.records.manifest import packages
from agentrl.records.restarts import read_restarts
from agentrl.report import summary
from agentrl.report.html import write_report
from agentrl.report.summary import Summary
from agentrl.report.terminal import TerminalView
from agentrl.report.transcript import decoder


def finish(folder: RunFolder, model: Path, view: TerminalView, ended: str) -> Summary:
    """Sum up the run in `folder`, which nobody writes any more; `model` is the folder of its tokenizer."""
    view.timer.enter("close")
    decode = decoder(model)
    summed = _summed(folder, view.timer, ended)
    summary.write(folder, summed)
    write_report(folder, decode)
    spent = view.timer.spent()
    summed = replace(summed, seconds=spent, seconds_total=spent.total)
    summary.write(folder, summed)
    view.close(summed, folder)
    return summed


def _summed(folder: RunFolder, timer: PhaseTimer, ended: str) -> Summary:
    journal, steps = RunJournal(folder), read_steps(folder)
    try:
        return summary.summarize(
            ended=ended,
            seconds=timer.spent(),
            parts=timer.parts,
            steps=steps,
            evaluations=read_evaluations(folder),
            counts=journal.ledger.counts(),
            conservation=journal.verdict(steps),
            incarnations=len(journal.ledger.forks()),
            packages=packages(),
            restarts=len(read_restarts(folder)),
        )
    finally:
        journal.close()
