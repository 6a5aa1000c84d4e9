"""The report of a run: one HTML file that opens anywhere, without network and without script."""

from __future__ import annotations

import bisect
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from agentrl.metrics.step import STEP_PHASES, EvaluationRecord, StepRecord
from agentrl.metrics.trackers import read_evaluations, read_steps
from agentrl.records.folder import RunFolder
from agentrl.records.jsonl import write_atomic
from agentrl.records.ledger import AttemptRow, Ledger, State
from agentrl.records.manifest import RunManifest, read_manifest
from agentrl.records.store import TrajectoryStore
from agentrl.report import curves, summary
from agentrl.report.charts import number
from agentrl.report.page import card, fold, links, page, section, table, tile
from agentrl.report.summary import Summary
from agentrl.report.transcript import Decode, headline, transcript
from agentrl.report.words import duration, no_update_words
from agentrl.types import StepReport, Trajectory

MOST_ROWS = 500
FATES = {
    State.TRAINED: "green", State.FILTERED: "gray", State.STALE: "amber", State.INVALID: "red",
    State.UNANSWERED: "amber", State.CANCELLED: "gray", State.LOST: "violet", State.FINISHED: "blue",
    State.IN_FLIGHT: "blue",
}  # fmt: skip
FATES_OF_STEP = ("stale", "invalid", "unanswered", "filtered")


@dataclass(frozen=True, slots=True)
class Material:
    """Everything that a report is made from."""

    folder: RunFolder
    steps: list[StepRecord]
    evaluations: list[EvaluationRecord]
    rows: list[AttemptRow]
    summary: Summary | None
    manifest: RunManifest | None
    decode: Decode | None


def write_report(folder: RunFolder, decode: Decode | None = None) -> Path:
    """Write report.html from what lies in the run folder; works on a run that still goes on, too.

    `decode` gives the text of each token id; without it tokens are shown as ids.
    """
    ledger = Ledger(folder.ledger, is_read_only=True)
    rows = list(ledger.rows())
    ledger.close()
    m = Material(
        folder,
        read_steps(folder),
        read_evaluations(folder),
        rows,
        summary.read(folder),
        read_manifest(folder),
        decode,
    )
    write_atomic(folder.report, render(m).encode())
    return folder.report


def render(m: Material) -> str:
    """The whole page."""
    learning, ages = curves.learning(m.steps, m.evaluations), curves.staleness(m.steps)
    speed = curves.speed(m.steps, m.summary)
    sections = [
        ("Learning", "Scores on tasks the model never trains on, and what training did to it.", learning),
        ("Speed", "Where the seconds of each step and of the whole command went, and tokens per second.", speed),
        ("Staleness", "How many updates old the tokens were that a step trained on.", ages),
        ("Samples", "What became of every attempt at a training sample, from the ledger.", _samples(m)),
        ("Trajectories", "Episodes to read, as the model lived them.", _trajectories(m)),
        ("Made of", "The configuration as resolved, versions and hashes.", _made_of(m)),
    ]
    shown = [(name, about, body) for name, about, body in sections if body]
    stamp = time.strftime("%Y-%m-%d %H:%M", time.localtime())
    foot = f"<footer>Written by agentrl on {stamp}. This file needs no network.</footer>"
    head = _head(m) + links([name for name, _, _ in shown]) + _tiles(m)
    return page(f"{m.folder.path.name}: agentrl", head + "".join(section(*part) for part in shown) + foot)


# --- the head -------------------------------------------------------------------------------------------------


def _head(m: Material) -> str:
    ended = m.summary.ended if m.summary else "This run has not ended."
    about = f"environment {m.manifest.env.name} · {ended}" if m.manifest else ended
    return f"<header><h1>{escape(m.folder.path.name)}</h1><p>{escape(about)}</p></header>"


def _tiles(m: Material) -> str:
    out = []
    if m.evaluations:
        first, last = m.evaluations[0], m.evaluations[-1]
        shown = (
            f"{first.pass_at_1.mean:.3f} → {last.pass_at_1.mean:.3f}"
            if last is not first
            else f"{first.pass_at_1.mean:.3f}"
        )
        interval = f"95 % interval {last.pass_at_1.low:.3f} to {last.pass_at_1.high:.3f}"
        note = f"{interval}, {last.tasks} tasks x {last.samples}" + (f"; {last.validity}" if last.validity else "")
        out.append(tile("Held-out pass@1", shown, note, is_wide=True))
    if m.steps:
        seconds = m.summary.seconds_total if m.summary else m.steps[-1].at - m.steps[0].at
        pace = statistics.median(record.seconds.total for record in m.steps)
        since = "since the last resume" if m.summary and m.summary.incarnations > 1 else "in all"
        out.append(tile("Steps", str(m.steps[-1].step), f"{duration(seconds)} {since}, {pace:.1f} s a step"))
        if still := no_update_words(m.steps):
            count, _, why = still.partition(": ")
            out.append(tile("No update", count, why, "bad", is_wide=True))
        sampled, trained = (
            sum(column) for column in zip(*((r.sampled_tokens, r.learner.learned_tokens) for r in m.steps), strict=True)
        )
        out.append(tile("Tokens sampled", number(sampled), f"{number(trained)} trained on"))
    if m.summary:
        law = m.summary.conservation
        said = "no sample lost or doubled" if law.holds else law.violations[0]
        out.append(tile("Conservation law", "holds" if law.holds else "broken", said, "good" if law.holds else "bad"))
    return f'<div class="tiles">{"".join(out)}</div>'


# --- samples --------------------------------------------------------------------------------------------------


def _samples(m: Material) -> str:
    if not m.rows:
        return ""
    counts = Counter(row.state for row in m.rows)
    rolled_back = m.summary.counts.rolled_back if m.summary else 0
    rows = [_fate_row(state, counts[state], len(m.rows)) for state in FATES if counts[state]]
    rows.append(["<b>dispatched</b>", "", f"<b>{len(m.rows):,}</b>", "<b>100 %</b>"])
    if rolled_back:
        rows.append(["trainings rolled back by a resume", "", f"{rolled_back:,}", ""])
    ledger = card("Ledger", "", table(["state", "", "attempts", "share"], rows, numbers=2, is_html=True))
    return f'<div class="grid two">{ledger}{_by_length(m.rows)}</div>{_reasons(m.rows)}'


def _fate_row(state: State, count: int, total: int) -> list[str]:
    share = 100 * count / total
    bar = f'<span class="share {FATES[state]}" style="width:{1.6 * share:.0f}px"></span>'
    return [state.value.replace("_", " "), bar, f"{count:,}", f"{share:.1f} %"]


def _reasons(rows: Sequence[AttemptRow]) -> str:
    reasons = Counter((row.state.value, row.reason) for row in rows if row.reason)
    shown = [[state, reason[:300], f"{count:,}"] for (state, reason), count in reasons.most_common(12)]
    body = table(["state", "reason", "attempts"], shown, numbers=1) if shown else "<p>Every attempt was trained.</p>"
    return card("Why samples were not trained", "", body)


def _by_length(rows: Sequence[AttemptRow]) -> str:
    lengths = sorted(row.tokens for row in rows if row.tokens is not None)
    if len(lengths) < 8:
        return ""
    edges = sorted({lengths[len(lengths) * i // 5] for i in range(1, 5)})
    fates = (State.TRAINED, State.STALE, State.INVALID, State.UNANSWERED, State.FILTERED)
    bins: list[Counter[State]] = [Counter() for _ in range(len(edges) + 1)]
    for row in rows:
        if row.tokens is not None:
            bins[bisect.bisect_right(edges, row.tokens)][row.state] += 1
    bounds = [lengths[0], *edges, lengths[-1] + 1]
    shown = [
        [f"{low} to {high - 1}", f"{sum(bin_.values()):,}"]
        + [f"{100 * bin_[f] / max(1, sum(bin_.values())):.1f} %" for f in fates]
        for low, high, bin_ in zip(bounds, bounds[1:], bins, strict=False)
    ]
    body = table(["tokens", "attempts", *(fate.value for fate in fates)], shown, numbers=6)
    return card("By response length", "", body, "Dropping stale samples favours short episodes: here is by how much.")


# --- trajectories ---------------------------------------------------------------------------------------------


def _trajectories(m: Material) -> str:
    store = TrajectoryStore(m.folder.trajectories)
    picked = [(name, store.read(row.sample, row.attempt)) for name, row in picks(m.rows)]
    return "".join(fold(name, _told(t), transcript(t, m.decode), is_open=i == 0) for i, (name, t) in enumerate(picked))


def _told(t: Trajectory) -> str:
    return f"sample {t.sample}, {headline(t)}"


def picks(rows: Sequence[AttemptRow]) -> list[tuple[str, AttemptRow]]:
    """The attempts worth reading: best and worst (the newest of each), first, last, one of each bad fate."""
    stored = sorted((r for r in rows if r.finished_at is not None), key=lambda r: r.finished_at or 0.0)
    scored = [row for row in stored if row.reward is not None]
    wanted: list[tuple[str, AttemptRow]] = []
    if scored:
        wanted = [
            ("best", max(reversed(scored), key=lambda r: r.reward or 0.0)),
            ("worst", min(reversed(scored), key=lambda r: r.reward or 0.0)),
            ("first", scored[0]),
            ("last", scored[-1]),
        ]
    for state in (State.STALE, State.INVALID, State.UNANSWERED):
        wanted += [(state.value, row) for row in stored if row.state is state][-1:]
    names: dict[AttemptRow, list[str]] = {}
    for name, row in wanted:
        names.setdefault(row, []).append(name)
    return [(", ".join(said).capitalize(), row) for row, said in names.items()]


# --- what it was made of --------------------------------------------------------------------------------------


def _made_of(m: Material) -> str:
    parts = []
    if m.folder.config.exists():
        text = m.folder.config.read_text(encoding="utf-8")
        parts.append(fold("Configuration", m.folder.config.name, f"<pre>{escape(text)}</pre>"))
    if m.manifest:
        env = m.manifest.env
        rows = [
            ["python", m.manifest.python],
            ["platform", m.manifest.platform],
            *map(list, m.manifest.packages.items()),
        ]
        parts.append(fold("Versions", f"python {m.manifest.python}", table(["package", "version"], rows)))
        files = [[env.distribution or env.name, env.version, "source", env.sha256]]
        files += [[f.name, number(f.bytes), "data", f.sha256] for f in m.manifest.data]
        files += [[f.name, number(f.bytes), "model", f.sha256] for f in m.manifest.model]
        parts.append(
            fold("Hashes", "environment, data, model", table(["name", "version or bytes", "what", "sha256"], files))
        )
    if m.steps:
        parts.append(fold("Numbers", "steps, as in metrics.jsonl", _numbers(m.steps)))
    return "".join(parts)


def _numbers(steps: Sequence[StepRecord]) -> str:
    names = STEP_PHASES
    head = ["step", "reward", "trained", *FATES_OF_STEP, "length", "entropy", "KL", "grad norm", *names]
    rows = [
        [str(r.step), f"{r.reward_mean:.3f}", str(r.trained)]
        + [str(getattr(r, fate)) for fate in FATES_OF_STEP]
        + [f"{r.length_mean:.1f}", f"{r.entropy:.3f}", *_means(r.learner)]
        + [f"{getattr(r.seconds, name):.2f}" for name in names]
        for r in steps[:: len(steps) // -MOST_ROWS][::-1]
    ]
    return table(head, rows, numbers=len(head) - 1)


def _means(learner: StepReport) -> list[str]:
    if not learner.has_learned:
        return ["-"] * 2
    return [f"{learner.mismatch_kl:.5f}", f"{learner.grad_norm:.3f}"]
