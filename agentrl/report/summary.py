"""Summary of a run: summary.json, and its closing lines in the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentrl.metrics.step import EvaluationRecord, PhaseSeconds, StepRecord
from agentrl.records.checkpoints import folder_of
from agentrl.records.conservation import ConservationResult
from agentrl.records.folder import RunFolder
from agentrl.records.jsonl import read_json, write_atomic
from agentrl.records.ledger import LedgerCounts
from agentrl.report.words import env_progress, no_update_words, progress_words, time_words, visible
from agentrl.types.outcomes import GroupOutcome, by_task, set_aside

FINISHED = "finished"
"""The beginning of `Summary.ended` for a run that completed its last step."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Result of a run. `ended` says why it stopped; `before` and `after` are its first and last evaluation.

    `best` is the evaluation of the checkpoint that was evaluated best, of those that are kept.
    `seconds` are those of the last command (the resume, if there was one) and add up to `seconds_total`; `start_parts`
    are the parts of its start, some of them in parallel. `no_update` says how many steps changed no weight, and why.
    """

    ended: str
    steps: int
    seconds_total: float
    seconds: PhaseSeconds
    before: EvaluationRecord | None
    after: EvaluationRecord | None
    tokens_sampled: int
    tokens_trained: int
    counts: LedgerCounts
    conservation: ConservationResult
    incarnations: int
    packages: dict[str, str]
    restarts: int = 0
    start_parts: dict[str, float] = field(default_factory=dict)
    no_update: str = ""
    set_aside: dict[str, int] = field(default_factory=dict)
    """Tasks without a signal, by reason."""
    best: EvaluationRecord | None = None

    @property
    def is_finished(self) -> bool:
        """True if the run completed its last step."""
        return self.ended.startswith(FINISHED)


def summarize(
    ended: str,
    seconds: PhaseSeconds,
    parts: dict[str, float],
    steps: Sequence[StepRecord],
    evaluations: Sequence[EvaluationRecord],
    counts: LedgerCounts,
    conservation: ConservationResult,
    incarnations: int,
    packages: dict[str, str],
    restarts: int = 0,
    outcomes: Sequence[GroupOutcome] = (),
    best: EvaluationRecord | None = None,
) -> Summary:
    """Summarize the records of a run; `seconds` are those of the whole command, `parts` those of its start."""
    return Summary(
        ended=ended,
        steps=steps[-1].step if steps else 0,
        seconds_total=seconds.total,
        seconds=seconds,
        before=evaluations[0] if evaluations else None,
        after=evaluations[-1] if len(evaluations) > 1 else None,
        tokens_sampled=sum(record.sampled_tokens for record in steps),
        tokens_trained=sum(record.learner.learned_tokens for record in steps),
        counts=counts,
        conservation=conservation,
        incarnations=incarnations,
        packages=packages,
        restarts=restarts,
        start_parts=dict(parts),
        no_update=no_update_words(steps),
        set_aside=dict(Counter(reason for visits in by_task(outcomes).values() if (reason := set_aside(visits)))),
        best=best,
    )


def write(folder: RunFolder, summary: Summary) -> None:
    """Write summary.json."""
    write_atomic(folder.summary, msgspec.json.format(msgspec.json.encode(summary)) + b"\n")


def read(folder: RunFolder) -> Summary | None:
    """Return the summary of a run, None if it has not ended. Raises RunError if the file is damaged."""
    return read_json(folder.summary, Summary, "delete it to read the rest of the run")


def closing(summary: Summary, folder: RunFolder) -> RenderableType:
    """Return the closing lines: score, steps, time, attempts by state, conservation law, and the paths of results."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _facts(summary):
        table.add_row(name, value)
    if summary.no_update:
        table.add_row("no update", Text(summary.no_update, style="bold yellow"))
    if best := summary.best:
        path = folder_of(folder.checkpoints, best.step)
        table.add_row("best checkpoint", Text(f"{path} (pass@1 {best.pass_at_1})", style="cyan"))
    law = summary.conservation
    style = "green" if law.holds else "bold red"
    table.add_row("conservation law", Text(str(law), style=style))
    table.add_row("report", Text(str(folder.report), style="cyan"))
    # Not wrapped: it contains a command with a path, to be copied.
    return Group(Text(f"\n{summary.ended}", style="bold", no_wrap=True, overflow="ignore"), table)


def _facts(s: Summary) -> list[tuple[str, str]]:
    facts = [("held-out score", words) for words in [progress_words(s.before, s.after)] if words]
    facts += [(f"· {label}", visible(words)) for label, words in env_progress(s.before, s.after).items()]
    facts += [(f"after step {e.step}", visible(e.validity)) for e in (s.before, s.after) if e and e.validity]
    c = s.counts
    states = ("trained", "baseline", "filtered", "stale", "invalid", "unanswered", "cancelled", "lost", "finished")
    counted = [
        f"{getattr(c, state)} {state.replace('_', ' ')}"
        for state in (*states, "rolled_back")
        if getattr(c, state) or state == "trained"
    ]
    aside = ", ".join(f"{count:,} {reason}" for reason, count in s.set_aside.items())
    restarts = [("restarts", f"{s.restarts} processes replaced")] if s.restarts else []
    return [
        *facts,
        ("steps", str(s.steps)),
        ("time" if s.incarnations < 2 else "time since the resume", time_words(s.seconds, s.start_parts)),
        ("attempts", f"{c.dispatched} dispatched: {', '.join(counted)}"),
        *([("tokens", f"{s.tokens_sampled:,} sampled, {s.tokens_trained:,} trained")] if s.steps else []),
        *([("tasks without a signal", aside)] if aside else []),
        *restarts,
    ]
