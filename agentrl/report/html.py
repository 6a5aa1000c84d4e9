"""The report of a run: one HTML file that opens anywhere, without network and without script."""

from __future__ import annotations

import bisect
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from agentrl.metrics.step import STEP_PHASES, EvaluationRecord, StepRecord
from agentrl.metrics.trackers import read_evaluations, read_steps
from agentrl.records.folder import RunFolder
from agentrl.records.jsonl import write_atomic
from agentrl.records.ledger import AttemptRow, Ledger, State
from agentrl.records.manifest import RunManifest, read_manifest
from agentrl.records.store import TrajectoryStore
from agentrl.report import curves, summary
from agentrl.report.charts import number
from agentrl.report.parts import Card, Share, Table, Tile
from agentrl.report.summary import Summary
from agentrl.report.transcript import Decode, Transcript, compact, text_of_part, transcript
from agentrl.report.words import duration, no_update_words, visible
from agentrl.types import StepReport
from agentrl.types.outcomes import GroupOutcome, by_task, set_aside

# The browser itself refuses script and network, whatever a model wrote.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

MOST_ROWS, MOST_TASKS = 500, 50
TONES = {
    State.TRAINED: "green", State.FILTERED: "gray", State.STALE: "amber", State.INVALID: "red",
    State.UNANSWERED: "amber", State.CANCELLED: "gray", State.LOST: "violet", State.FINISHED: "blue",
    State.IN_FLIGHT: "blue", State.BASELINE: "gray",
}  # fmt: skip
DROPPED_IN_STEP = ("stale", "invalid", "unanswered", "filtered")


@dataclass(frozen=True, slots=True)
class Material:
    """Everything that a report shows."""

    folder: RunFolder
    steps: list[StepRecord]
    evaluations: list[EvaluationRecord]
    rows: list[AttemptRow]
    outcomes: list[GroupOutcome]
    summary: Summary | None
    manifest: RunManifest | None
    decode: Decode | None


def write_report(folder: RunFolder, decode: Decode | None = None) -> Path:
    """Write report.html from the files of the run, which may still be going.

    `decode` gives the text of each token id; without it tokens are shown as ids.
    """
    with closing(Ledger(folder.ledger, is_read_only=True)) as ledger:
        rows, outcomes = list(ledger.rows()), ledger.outcomes()
    steps, evaluations = read_steps(folder), read_evaluations(folder)
    m = Material(folder, steps, evaluations, rows, outcomes, summary.read(folder), read_manifest(folder), decode)
    write_atomic(folder.report, render(m).encode())
    return folder.report


def render(m: Material) -> str:
    """Return the whole page."""
    config = m.folder.config
    return (
        templates()
        .get_template("report.html.jinja")
        .render(
            policy=POLICY,
            name=m.folder.path.name,
            about=_about(m),
            written=time.strftime("%Y-%m-%d %H:%M", time.localtime()),
            tiles=_tiles(m),
            learning=curves.learning(m.steps, m.evaluations),
            speed=curves.speed(m.steps),
            command=curves.command_time(m.summary) if m.summary else None,
            staleness=curves.staleness(m.steps),
            samples=_samples(m),
            reasons=_reasons(m.rows),
            transcripts=_transcripts(m),
            config=config.read_text(encoding="utf-8") if config.exists() else "",
            manifest=m.manifest,
            versions=_versions(m.manifest) if m.manifest else None,
            hashes=_hashes(m.manifest) if m.manifest else None,
            numbers=_numbers(m.steps) if m.steps else None,
        )
    )


@cache
def templates() -> Environment:
    """Return the templates of the report. They escape every value except Markup, and show control codes as signs."""
    environment = Environment(
        loader=PackageLoader("agentrl.report"),
        autoescape=True,
        finalize=lambda value: visible(value) if isinstance(value, str) else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"compact": compact, "text_of_part": text_of_part}
    return environment


# --- the head -------------------------------------------------------------------------------------------------


def _about(m: Material) -> str:
    ended = m.summary.ended if m.summary else "This run has not ended."
    if not m.manifest:
        return ended
    names = [env.name for env in m.manifest.envs]
    return f"environment{'s' * (len(names) > 1)} {', '.join(names)} · {ended}"


def _tiles(m: Material) -> list[Tile]:
    tiles = [_score_tile(m.evaluations[0], m.evaluations[-1])] if m.evaluations else []
    if m.steps:
        tiles.append(_steps_tile(m.steps, m.summary))
        if still := no_update_words(m.steps):
            count, _, why = still.partition(": ")
            tiles.append(Tile("No update", count, why, "bad", is_wide=True))
        sampled = sum(r.sampled_tokens for r in m.steps)
        trained = sum(r.learner.learned_tokens for r in m.steps)
        tiles.append(Tile("Tokens sampled", number(sampled), f"{number(trained)} trained on"))
    if m.summary:
        law = m.summary.conservation
        note = "no sample lost or trained twice" if law.holds else law.violations[0]
        word, tone = ("holds", "good") if law.holds else ("broken", "bad")
        tiles.append(Tile("Conservation law", word, note, tone))
    return tiles


def _score_tile(first: EvaluationRecord, last: EvaluationRecord) -> Tile:
    score = f"{first.pass_at_1.mean:.3f}"
    if last is not first:
        score += f" → {last.pass_at_1.mean:.3f}"
    interval = f"95 % interval {last.pass_at_1.low:.3f} to {last.pass_at_1.high:.3f}"
    note = f"{interval}, {last.tasks} tasks x {last.samples}" + (f"; {last.validity}" if last.validity else "")
    return Tile("Held-out pass@1", score, note, is_wide=True)


def _steps_tile(steps: Sequence[StepRecord], done: Summary | None) -> Tile:
    seconds = done.seconds_total if done else steps[-1].at - steps[0].at
    pace = statistics.median(record.seconds.total for record in steps)
    since = "since the last resume" if done and done.incarnations > 1 else "in total"
    return Tile("Steps", str(steps[-1].step), f"{duration(seconds)} {since}, {pace:.1f} s a step")


# --- samples --------------------------------------------------------------------------------------------------


def _samples(m: Material) -> list[Card]:
    if not m.rows:
        return []
    counts = Counter(row.state for row in m.rows)
    rows = [_state_row(state, counts[state], len(m.rows)) for state in TONES if counts[state]]
    rows.append(["dispatched", "", f"{len(m.rows):,}", "100 %"])
    total = len(rows) - 1
    if m.summary and m.summary.counts.rolled_back:
        rows.append(["trainings rolled back by a resume", "", f"{m.summary.counts.rolled_back:,}", ""])
    table = Table(["state", "", "attempts", "share"], rows, numbers=2, total=total)
    return [Card("Ledger", "", table), *_by_length(m.rows), *_without_signal(m)]


def _without_signal(m: Material) -> list[Card]:
    """Return the tasks whose groups compare nothing, if there are any."""
    tasks = [(task, visits, why) for task, visits in by_task(m.outcomes).items() if (why := set_aside(visits))]
    if not tasks:
        return []
    rows = [
        [env, visits[-1].task_id[:80], why, f"{sum(v.samples for v in visits)}", f"{sum(v.invalid for v in visits)}"]
        for (env, _), visits, why in sorted(tasks, key=lambda task: (task[2], task[0]))[:MOST_TASKS]
    ]
    table = Table(["environment", "task", "why", "samples", "invalid"], rows, numbers=2)
    note = (
        "Their groups compare nothing. rollout.curriculum solve_rate sets them aside: it visits them in one of eight "
        "epochs. Samples and invalid ones of the latest visits."
    )
    return [Card("Tasks without a signal", f"{len(tasks):,}", table, note=note)]


def _state_row(state: State, count: int, total: int) -> list[str | Share]:
    share = 100 * count / total
    return [state.value.replace("_", " "), Share(share, TONES[state]), f"{count:,}", f"{share:.1f} %"]


def _reasons(rows: Sequence[AttemptRow]) -> Card:
    reasons = Counter((row.state.value, row.reason) for row in rows if row.reason)
    shown = [[state, reason[:300], f"{count:,}"] for (state, reason), count in reasons.most_common(12)]
    table = Table(["state", "reason", "attempts"], shown, numbers=1)
    return Card("Why samples were not trained", "", table if shown else "Every attempt was trained.")


def _by_length(rows: Sequence[AttemptRow]) -> list[Card]:
    lengths = sorted(row.tokens for row in rows if row.tokens is not None)
    if len(lengths) < 8:
        return []
    edges = sorted({lengths[len(lengths) * i // 5] for i in range(1, 5)})
    states = (State.TRAINED, State.STALE, State.INVALID, State.UNANSWERED, State.FILTERED)
    bins: list[Counter[State]] = [Counter() for _ in range(len(edges) + 1)]
    for row in rows:
        if row.tokens is not None:
            bins[bisect.bisect_right(edges, row.tokens)][row.state] += 1
    bounds = [lengths[0], *edges, lengths[-1] + 1]
    shown = [
        [f"{low} to {high - 1}", f"{bin_.total():,}"]
        + [f"{100 * bin_[state] / max(1, bin_.total()):.1f} %" for state in states]
        for low, high, bin_ in zip(bounds, bounds[1:], bins, strict=False)
    ]
    table = Table(["tokens", "attempts", *(state.value for state in states)], shown, numbers=6)
    note = "Dropping stale samples favours short episodes; this table shows by how much."
    return [Card("By response length", "", table, note=note)]


# --- trajectories ---------------------------------------------------------------------------------------------


def _transcripts(m: Material) -> list[Transcript]:
    store = TrajectoryStore(m.folder.trajectories)
    return [transcript(store.read(row.sample, row.attempt), m.decode, name) for name, row in picks(m.rows)]


def picks(rows: Sequence[AttemptRow]) -> list[tuple[str, AttemptRow]]:
    """Return the attempts to show: the newest best and worst, first, last, and the last of each kind of failure."""
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
    return [(", ".join(labels).capitalize(), row) for row, labels in names.items()]


# --- provenance -----------------------------------------------------------------------------------------------


def _versions(manifest: RunManifest) -> Table:
    rows = [("python", manifest.python), ("platform", manifest.platform), *manifest.packages.items()]
    return Table(["package", "version"], rows)


def _hashes(manifest: RunManifest) -> Table:
    algorithm = manifest.algorithm
    files = [[env.distribution or env.name, env.version, "source", env.sha256] for env in manifest.envs]
    files += [[w.distribution, w.version, "wrapped", w.sha256] for env in manifest.envs for w in env.wraps]
    files += [[algorithm.name, algorithm.version, "algorithm", algorithm.sha256]] if algorithm else []
    files += [[f.name, number(f.bytes), "data", f.sha256] for f in manifest.data]
    files += [[f.name, number(f.bytes), role, f.sha256] for role, found in manifest.models.items() for f in found]
    return Table(["name", "version or bytes", "kind", "sha256"], files)


def _numbers(steps: Sequence[StepRecord]) -> Table:
    head = ["step", "reward", "trained", *DROPPED_IN_STEP, "length", "entropy", "KL", "grad norm", *STEP_PHASES]
    rows = [
        [str(r.step), f"{r.reward_mean:.3f}", str(r.trained)]
        + [str(getattr(r, name)) for name in DROPPED_IN_STEP]
        + [f"{r.length_mean:.1f}", f"{r.entropy:.3f}", *_means(r.learner)]
        + [f"{getattr(r.seconds, name):.2f}" for name in STEP_PHASES]
        for r in steps[:: len(steps) // -MOST_ROWS][::-1]
    ]
    return Table(head, rows, numbers=len(head) - 1)


def _means(learner: StepReport) -> list[str]:
    if not learner.has_learned:
        return ["-"] * 2
    return [f"{learner.meters.get('mismatch_kl', 0.0):.5f}", f"{learner.grad_norm:.3f}"]
