"""Progress of a run: a panel in a terminal, one line per step elsewhere."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from agentrl.metrics.step import EvaluationRecord, StepRecord
from agentrl.metrics.timer import PhaseTimer
from agentrl.records.folder import RunFolder
from agentrl.report.summary import Summary, closing
from agentrl.report.words import (
    dropped_words,
    duration,
    env_words,
    evaluation_words,
    no_update_words,
    role_words,
    sequences_words,
    speed_words,
    step_words,
    visible,
    why_no_update,
)

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 96
QUIET_S = 20.0
"""Seconds in one phase after which a line says so where nothing is redrawn, and again each time they have doubled."""


@dataclass
class TerminalView:
    """Shows a run of `steps` steps: a panel redrawn in place below its lines in a terminal, lines only elsewhere.

    Elsewhere, a line also names a phase that takes long, so that a run that works never looks like one that hangs.

    `timer` knows the current phase. Calls are cheap and safe in any order after `start`; `close` restores the terminal
    and is idempotent.
    """

    steps: int
    console: Console = field(default_factory=Console)
    timer: PhaseTimer = field(default_factory=PhaseTimer)
    _live: Live | None = field(init=False, default=None)
    _closed: threading.Event = field(init=False, default_factory=threading.Event)
    _records: deque[StepRecord] = field(init=False, default_factory=lambda: deque(maxlen=64))
    _evaluations: list[EvaluationRecord] = field(init=False, default_factory=list)

    def start(self, line: str) -> None:
        """Print `line` and begin to draw."""
        self._line(line)
        if self.console.is_terminal:
            self._live = Live(get_renderable=self._panel, console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        else:
            self.name_long_phases()

    def name_long_phases(self) -> None:
        """Print a line for each phase that takes long, until `close`."""
        threading.Thread(target=self._name_long_phases, daemon=True).start()

    def step(self, record: StepRecord) -> None:
        """Show a finished step."""
        self._records.append(record)
        if self._live is None:
            self._line(step_words(record, self.steps) + self._left_words())

    def evaluation(self, record: EvaluationRecord) -> None:
        """Show a finished evaluation."""
        self._evaluations.append(record)
        self._line(evaluation_words(record))

    def note(self, text: str) -> None:
        """Print a line that stays above the panel: a fault, a restart, a checkpoint."""
        self._line(text)

    def close(self, summary: Summary | None = None, folder: RunFolder | None = None) -> None:
        """Stop drawing; with a summary, print its closing lines."""
        self._closed.set()
        if self._live is not None:
            self._live.stop()
            self._live = None
        if summary is not None and folder is not None:
            self.console.print(closing(summary, folder), crop=False)

    def left_s(self) -> float | None:
        """Seconds until the last step at the pace of the last ten steps, None before the first."""
        recent = list(self._records)[-10:]
        if not recent:
            return None
        return (self.steps - recent[-1].step) * sum(record.seconds.total for record in recent) / len(recent)

    # --- drawing --------------------------------------------------------------------------------------------

    def _line(self, text: str) -> None:
        self.console.print(Text(visible(text)), soft_wrap=True)

    def _name_long_phases(self) -> None:
        since, next_s = self.timer.since, QUIET_S
        while not self._closed.wait(QUIET_S / 10):
            if since != self.timer.since:
                since, next_s = self.timer.since, QUIET_S
            if (now_s := self.timer.seconds_in_phase()) >= next_s:
                next_s = 2 * now_s
                self._line(f"still in the phase {self.timer.current} · {duration(now_s)}")

    def _left_words(self) -> str:
        left = self.left_s()
        return f" · {duration(left)} left" if left else ""

    def _panel(self) -> RenderableType:
        """Called by rich four times a second in its own thread, so it only reads."""
        done = self._records[-1].step if self._records else 0
        head = Table.grid(padding=(0, 1), expand=True)
        head.add_column(no_wrap=True)
        head.add_column(ratio=1)
        head.add_column(justify="right", no_wrap=True)
        left = self.left_s()
        bar = ProgressBar(total=max(1, self.steps), completed=done, complete_style="cyan", finished_style="green")
        head.add_row(Text(f"step {done}/{self.steps}", style="bold"), bar, f"{duration(left)} left" if left else "")
        now = Text(f"{self.timer.current} · {self.timer.seconds_in_phase():.0f} s", style="dim")
        return Panel(Group(head, self._facts(), now), width=min(WIDTH, self.console.width), border_style="dim")

    def _facts(self) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(no_wrap=True, max_width=WIDTH)
        for name, value, curve in self._rows():
            table.add_row(name, Text.assemble(f"{value:<38}" if curve else value, (curve, "cyan")))
        return table

    def _rows(self) -> list[tuple[str, str, str]]:
        rows = []
        if self._evaluations:
            scores = [record.pass_at_1.mean for record in self._evaluations]
            rows.append(("held-out", f"pass@1 {self._evaluations[-1].pass_at_1}", sparkline(scores)))
        if not self._records:
            return rows
        records = list(self._records)
        r = records[-1]
        ages = " ".join(f"{age}:{count}" for age, count in enumerate(r.staleness) if count)
        lengths = f"{r.length_mean:.0f} tokens, {r.turns_mean:.1f} turns{sequences_words(r)}"
        return [
            *rows,
            ("reward", f"{r.reward_mean:.3f} ± {r.reward_std:.2f}", sparkline([x.reward_mean for x in records])),
            *[(label, env_words(r.envs[label]), sparkline(_rewards(label, records))) for label in r.envs],
            *[(f"role {name}", role_words(use), "") for name, use in r.roles.items()],
            ("length", lengths, sparkline([x.length_mean for x in records])),
            ("entropy", f"{r.entropy:.3f}", sparkline([x.entropy for x in records])),
            *([("no update", no_update_words(records), "")] if any(map(why_no_update, records)) else []),
            ("samples", f"{r.trained} trained{dropped_words(r)}", ""),
            ("speed", speed_words(r), ""),
            ("staleness", f"{r.staleness_mean:.2f} updates  ({ages})" if ages else "-", ""),
        ]


def _rewards(label: str, records: list[StepRecord]) -> list[float]:
    """Return the mean rewards of an environment in the steps that trained it."""
    return [r.envs[label].reward_mean for r in records if label in r.envs and r.envs[label].trained]


def sparkline(values: list[float], width: int = 32) -> str:
    """Return the last values as small bars, scaled from the lowest to the highest."""
    shown = [value for value in values[-width:] if value == value]
    if len(shown) < 2:
        return ""
    low, span = min(shown), max(shown) - min(shown)
    return "".join(BARS[round((value - low) / span * (len(BARS) - 1)) if span else 0] for value in shown)
