"""Finish a run: check conservation, write summary and report, print the closing lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agentrl.metrics.timer import PhaseTimer
from agentrl.metrics.trackers import best_evaluation, read_evaluations, read_steps
from agentrl.records.folder import RunFolder
from agentrl.records.journal import RunJournal
from agentrl.records.jsonl import closing
from agentrl.records.manifest import packages
from agentrl.records.restarts import read_restarts
from agentrl.report import summary
from agentrl.report.html import write_report
from agentrl.report.summary import Summary
from agentrl.report.terminal import TerminalView
from agentrl.report.transcript import decoder


def finish(folder: RunFolder, model: Path, view: TerminalView, ended: str) -> Summary:
    """Summarize the run in `folder`, whose processes have ended; `model` is the folder of its tokenizer."""
    view.timer.enter("close")
    decode = decoder(model)
    result = _summarize(folder, view.timer, ended)
    summary.write(folder, result)
    write_report(folder, decode)
    spent = view.timer.spent()
    result = replace(result, seconds=spent, seconds_total=spent.total)
    summary.write(folder, result)
    view.close(result, folder)
    return result


def _summarize(folder: RunFolder, timer: PhaseTimer, ended: str) -> Summary:
    steps = read_steps(folder)
    with closing(RunJournal(folder)) as journal:
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
            outcomes=journal.ledger.outcomes(),
            best=best_evaluation(folder),
        )
