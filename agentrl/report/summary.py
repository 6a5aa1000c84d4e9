"""How a run ended: summary.json, and the closing words in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentrl.metrics.step import EvaluationRecord, PhaseSeconds, StepRecord
from agentrl.records.conservation import ConservationResult
from agentrl.records.folder import RunFolder
from agentrl.records.jsonl import write_atomic
from agentrl.records.ledger import LedgerCounts
from agentrl.report.still import still_words
from agentrl.report.words import visible

FINISHED = "finished"
"""How the words begin that say why a run ended, where it came to its last step."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run came to. `ended` says why it stopped; `before` and `after` are its first and last evaluation.

    `seconds` are those of the command that wrote this (the resume, where there was one) and add up to `seconds_total`;
    `start_parts` are what its start consists of, some of it side by side. `no_update` says which share of the steps
    moved no weight, and why.
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

    @property
    def is_finished(self) -> bool:
        """True when the run came to its last step."""
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
) -> Summary:
    """Add up the records of a run; `seconds` are those of the whole command, `parts` those of its start."""
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
        no_update=still_words(steps),
    )


def write(folder: RunFolder, summary: Summary) -> None:
    """Write summary.json."""
    write_atomic(folder.summary, msgspec.json.format(msgspec.json.encode(summary)) + b"\n")


def read(folder: RunFolder) -> Summary | None:
    """The summary of a run, None when it has not ended."""
    return msgspec.json.decode(folder.summary.read_bytes(), type=Summary) if folder.summary.exists() else None


def closing(summary: Summary, folder: RunFolder) -> RenderableType:
    """What the terminal says at the end: the score, what became of the samples, the law, and where to look."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _facts(summary):
        table.add_row(name, value)
    if summary.no_update:
        table.add_row("no update", Text(summary.no_update, style="bold yellow"))
    law = summary.conservation
    style = "green" if law.holds else "bold red"
    table.add_row("conservation law", Text(str(law), style=style))
    table.add_row("report", Text(str(folder.report), style="cyan"))
    # Not wrapped: it names a command with a path, to be copied.
    return Group(Text(f"\n{summary.ended}", style="bold", no_wrap=True, overflow="ignore"), table)


def _facts(s: Summary) -> list[tuple[str, str]]:
    facts = [("held-out score", words) for words in [score_words(s.before, s.after)] if words]
    facts += [(f"after step {e.step}", visible(e.validity)) for e in (s.before, s.after) if e and e.validity]
    c = s.counts
    fates = ("trained", "filtered", "stale", "invalid", "unanswered", "cancelled", "lost", "finished", "rolled_back")
    told = [f"{getattr(c, fate)} {fate.replace('_', ' ')}" for fate in fates if getattr(c, fate) or fate == "trained"]
    restarts = [("restarts", f"{s.restarts} processes replaced")] if s.restarts else []
    return [
        *facts,
        ("steps", str(s.steps)),
        ("time" if s.incarnations < 2 else "time since resumed", time_words(s.seconds, s.start_parts)),
        ("attempts", f"{c.dispatched} dispatched: {', '.join(told)}"),
        ("tokens", f"{s.tokens_sampled:,} sampled, {s.tokens_trained:,} trained"),
        *restarts,
    ]


def score_words(before: EvaluationRecord | None, after: EvaluationRecord | None) -> str:
    """'pass@1 0.070 [0.05, 0.09] → 0.812 [0.78, 0.84]', or what there is of it."""
    if before is None:
        return ""
    first = f"pass@1 {before.pass_at_1}"
    return first if after is None else f"{first} → {after.pass_at_1}"


def time_words(seconds: PhaseSeconds, parts: dict[str, float]) -> str:
    """'1 min 20 s: start 40 s (engines 31 s, ray 5 s), rollout 30 s, …': every phase of at least half a second."""
    phases = {name: getattr(seconds, name) for name in PhaseSeconds.__slots__}
    told = [f"{name} {value:.0f} s{_parts(parts) if name == 'start' else ''}" for name, value in _longest(phases)]
    return f"{duration(seconds.total)}: {', '.join(told)}" if told else duration(seconds.total)


def _parts(parts: dict[str, float]) -> str:
    told = ", ".join(f"{name} {value:.0f} s" for name, value in _longest(parts))
    return f" ({told})" if told else ""


def _longest(seconds: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(((name, value) for name, value in seconds.items() if value >= 0.5), key=lambda item: -item[1])


def duration(seconds: float) -> str:
    """'8 s', '3 min 20 s', '2 h 05 min'."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
