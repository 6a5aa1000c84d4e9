"""The curves of the report: what training did, how fast, and on how old tokens."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from html import escape

from agentrl.metrics.statistics import Interval
from agentrl.metrics.step import EvaluationRecord, StepRecord
from agentrl.report.charts import SMALL, WIDE, Bars, Series, Size, histogram, legend, lines, number, stacked
from agentrl.report.page import card, table
from agentrl.report.summary import Summary
from agentrl.report.words import duration

PHASES = {
    "rollout": "blue", "learn": "green", "publish": "amber", "checkpoint": "violet", "evaluate": "red", "other": "gray",
}  # fmt: skip
COMMAND_PHASES = {"start": "violet", **PHASES, "close": "gray"}


def learning(steps: Sequence[StepRecord], evaluations: Sequence[EvaluationRecord]) -> str:
    """Held-out score and reward in large, the learner's curves in small."""
    big = [chart for chart in (_held_out(evaluations), _reward(steps)) if chart]
    learned = [r for r in steps if r.learner.has_learned]
    x, reports = [r.step for r in learned], [r.learner for r in learned]
    curves = [
        ("KL, sampler to learner", [r.mismatch_kl for r in reports], "amber", "At the tokens with an advantage."),
        ("Gradient norm", [r.grad_norm for r in reports], "green", "Before clipping."),
        ("Loss", [r.loss for r in reports], "gray", "Its level means little in policy gradients."),
        ("Learning rate", [r.lr for r in reports], "gray", ""),
    ]
    if any(r.reference_kl for r in reports):
        curves.append(("KL to the reference", [r.reference_kl for r in reports], "amber", "The k3 estimator."))
    small = [_curve(Series(name, x, y, tone, is_smoothed=True), note) for name, y, tone, note in curves]
    small.insert(3, _length(steps))
    small.insert(0, _entropy(steps))
    small[:0] = [*_tools(steps, evaluations), *_signals(steps)]
    return f'<div class="grid two">{"".join(big)}</div><div class="grid">{"".join(small)}</div>'


def _held_out(evaluations: Sequence[EvaluationRecord]) -> str:
    if not evaluations:
        return ""
    x = [e.step for e in evaluations]
    one, several = [e.pass_at_1 for e in evaluations], [e.pass_at_k for e in evaluations]
    k = evaluations[-1].k
    series = [_scored("pass@1", x, one, "blue")]
    if k > 1:
        series.insert(0, _scored(f"pass@{k}", x, several, "green"))
    names = [(s.name, s.tone) for s in reversed(series)]
    picture = lines(series, "Held-out score", WIDE, (0.0, 1.0)) + legend(names)
    doubts = [f" After step {e.step}: {e.validity}." for e in evaluations if e.validity]
    note = f"Bands: 95 % interval ({one[-1].method}, the task as unit).{''.join(doubts)}"
    return card("Held-out score", str(one[-1]), picture, note)


def _scored(name: str, x: Sequence[float], scores: Sequence[Interval], tone: str) -> Series:
    means, low, high = ([getattr(score, part) for score in scores] for part in ("mean", "low", "high"))
    return Series(name, x, means, tone, low, high, has_dots=True)


def _entropy(steps: Sequence[StepRecord]) -> str:
    """Of all sampled tokens, not of those with an advantage alone."""
    series = Series("Entropy", [r.step for r in steps], [r.entropy for r in steps], "violet", is_smoothed=True)
    return _curve(series, "Nats per token, over all sampled tokens.")


def _reward(steps: Sequence[StepRecord]) -> str:
    if not steps:
        return ""
    rewards = [r.reward_mean for r in steps]
    series = Series("reward", [r.step for r in steps], rewards, "blue", is_smoothed=True)
    note = "Mean over the samples of a step; the bold line is a running mean."
    return card("Training reward", f"{rewards[-1]:.3f}", lines([series], "Training reward", WIDE), note)


def _tools(steps: Sequence[StepRecord], evaluations: Sequence[EvaluationRecord]) -> list[str]:
    """How many episodes used a tool, where there are any."""
    if not any(r.tool_calls_mean for r in steps):
        return []
    series = [
        Series("training", [r.step for r in steps], [r.tool_use for r in steps], "gray"),
        Series("held out", [e.step for e in evaluations], [e.tool_use for e in evaluations], "blue", has_dots=True),
    ]
    picture = lines(series, "Tool use", SMALL, (0.0, 1.0)) + legend([(s.name, s.tone) for s in series[::-1]])
    note = "Share of episodes in which a tool answered by anything but an error."
    return [card("Tool use", f"{steps[-1].tool_use:.2f}", picture, note)]


def _signals(steps: Sequence[StepRecord]) -> list[str]:
    """One curve for each signal, where there are several: what the reward is made of."""
    names = list(dict.fromkeys(name for r in steps for name in r.signals))
    return [_curve(_signal(name, steps), "Mean over the samples of a step.") for name in names if len(names) > 1]


def _signal(name: str, steps: Sequence[StepRecord]) -> Series:
    told = [r for r in steps if name in r.signals]
    return Series(name, [r.step for r in told], [r.signals[name] for r in told], "blue", is_smoothed=True)


def _curve(series: Series, note: str = "", size: Size = SMALL) -> str:
    title = series.name
    return card(title, number(series.y[-1]) if series.y else "", lines([series], title, size), note)


def _length(steps: Sequence[StepRecord]) -> str:
    x = [r.step for r in steps]
    series = [
        Series("longest", x, [r.length_max for r in steps], "gray"),
        Series("mean", x, [r.length_mean for r in steps], "blue"),
    ]
    picture = lines(series, "Response length") + legend([("mean", "blue"), ("longest", "gray")])
    return card("Response length", f"{steps[-1].length_mean:.0f} tokens" if steps else "", picture)


def speed(steps: Sequence[StepRecord], summary: Summary | None) -> str:
    """Seconds by phase, of the steps and of the whole command, and tokens per second."""
    whole = _command(summary) if summary else ""
    return f'<div class="grid two">{_seconds(steps)}{_rates(steps)}</div>{whole}' if steps else whole


def _command(summary: Summary) -> str:
    """Where the time of the whole command went; what the start consists of stands under it."""
    total = summary.seconds_total
    rows = []
    for name, tone in COMMAND_PHASES.items():
        rows += [_time_row(name, getattr(summary.seconds, name), total, tone)]
        if name == "start":
            rows += [_time_row(f"· {part}", value, total, "gray") for part, value in summary.start_parts.items()]
    rows.append(["<b>the whole command</b>", "", f"<b>{total:,.1f}</b>", "<b>100 %</b>"])
    note = "The phases add up to the whole. What is started side by side (engines, workers, learner) does not."
    body = table(["phase", "", "seconds", "share"], rows, numbers=2, is_html=True)
    return card("Time of the command", duration(total), body, note)


def _time_row(name: str, seconds: float, total: float, tone: str) -> list[str]:
    share = 100 * seconds / total if total else 0.0
    bar = f'<span class="share {tone}" style="width:{1.6 * share:.0f}px"></span>'
    return [escape(name), bar, f"{seconds:,.1f}", f"{share:.1f} %"]


def _seconds(steps: Sequence[StepRecord]) -> str:
    layers = [Bars(name, [getattr(r.seconds, name) for r in steps], tone) for name, tone in PHASES.items()]
    used = [layer for layer in layers if any(layer.values)]
    total = sum(r.seconds.total for r in steps)
    shares = ", ".join(f"{layer.name} {100 * sum(layer.values) / total:.0f} %" for layer in used)
    picture = stacked(used, [r.step for r in steps], "Seconds by phase") + legend([(x.name, x.tone) for x in used])
    return card(
        "Seconds by phase", f"{statistics.median(r.seconds.total for r in steps):.1f} s a step", picture, shares
    )


def _rates(steps: Sequence[StepRecord]) -> str:
    x = [r.step for r in steps]
    rates = [
        Series("learned", x, [r.trained_per_s for r in steps], "green"),
        Series("sampled", x, [r.sampled_per_s for r in steps], "blue"),
        Series("whole step", x, [r.tokens_per_s for r in steps], "gray"),
    ]
    picture = lines(rates, "Tokens per second", WIDE) + legend([(s.name, s.tone) for s in rates])
    now = f"{steps[-1].sampled_per_s:,.0f} sampled"
    return card("Tokens per second", now, picture, "Each over the seconds of its own phase.")


def staleness(steps: Sequence[StepRecord]) -> str:
    """How old the trained samples were, in all and over time."""
    if not steps:
        return ""
    ages: Counter[int] = Counter()
    for record in steps:
        ages.update(dict(enumerate(record.staleness)))
    oldest = max((age for age, count in ages.items() if count), default=0)
    names = [str(age) for age in range(oldest + 1)]
    bars = histogram(names, Bars("samples", [ages[int(name)] for name in names], "blue"), "Trained samples by age")
    mid = sum(r.mid_updates for r in steps)
    mean = Series("Mean age", [r.step for r in steps], [r.staleness_mean for r in steps], is_smoothed=True)
    note = f"Updates between the oldest token and the training. More than one version sampled {mid} samples."
    by_age = card("Trained samples by age", f"at most {oldest}", bars, note)
    return f'<div class="grid two">{by_age}{_curve(mean, "Updates, over the samples of a step.", WIDE)}</div>'
