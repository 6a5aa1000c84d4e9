"""The charts of the report: what training did, how fast, and on how old tokens."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

from agentrl.metrics.statistics import Interval
from agentrl.metrics.step import EvaluationRecord, StepRecord
from agentrl.report.charts import SMALL, WIDE, Bars, Series, Size, histogram, lines, number, stacked
from agentrl.report.parts import Card, Share, Table
from agentrl.report.summary import Summary
from agentrl.report.words import duration, role_words
from agentrl.types import RoleUse, StepReport

PHASES = {
    "rollout": "blue", "learn": "green", "publish": "amber", "checkpoint": "violet", "evaluate": "red", "other": "gray",
}  # fmt: skip
TONES = ("blue", "green", "amber", "violet", "red", "gray")
COMMAND_PHASES = {"start": "violet", **PHASES, "close": "gray"}


@dataclass(frozen=True, slots=True)
class Learning:
    """Large cards of held-out score and reward, small ones of everything else."""

    large: list[Card]
    small: list[Card]


def learning(steps: Sequence[StepRecord], evaluations: Sequence[EvaluationRecord]) -> Learning:
    """Return the cards of scores, rewards, tools and the learner.

    The learner's curves leave out steps without an update.
    """
    learned = [r for r in steps if r.learner.has_learned]

    def curve(title: str, value: Callable[[StepReport], float], tone: str, note: str = "") -> Card:
        y = [value(r.learner) for r in learned]
        return _curve(Series(title, [r.step for r in learned], y, tone, is_smoothed=True), note)

    small = [
        *_tools(steps, evaluations),
        *_roles(steps),
        *_signals(steps),
        _entropy(steps),
        curve(
            "KL, sampler to learner",
            lambda r: r.meters.get("mismatch_kl", 0.0),
            "amber",
            "Mean over the tokens that were trained. Without a KL or entropy term, sequences whose advantages are all "
            "0 are left out.",
        ),
        curve("Gradient norm", lambda r: r.grad_norm, "green", "Before clipping."),
        curve("Loss", lambda r: r.loss, "gray", "Its value means little for policy gradients."),
        _length(steps),
        *_turns(steps),
        curve("Learning rate", lambda r: r.lr, "gray"),
    ]
    if any(r.learner.meters.get("reference_kl", 0.0) for r in learned):
        small.append(
            curve("KL to the reference", lambda r: r.meters.get("reference_kl", 0.0), "amber", "The k3 estimator.")
        )
    large = [*_held_out(evaluations), *_reward(steps), *_env_scores(evaluations), *_env_rewards(steps)]
    return Learning(large, small)


def _held_out(evaluations: Sequence[EvaluationRecord]) -> list[Card]:
    if not evaluations:
        return []
    x = [e.step for e in evaluations]
    one, several = [e.pass_at_1 for e in evaluations], [e.pass_at_k for e in evaluations]
    k = evaluations[-1].k
    series = [_scored("pass@1", x, one, "blue")]
    if k > 1:
        series.insert(0, _scored(f"pass@{k}", x, several, "green"))
    picture = lines(series, "Held-out score", WIDE, (0.0, 1.0))
    doubts = [f" After step {e.step}: {e.validity}." for e in evaluations if e.validity]
    note = f"Bands: 95 % interval ({one[-1].method} over tasks).{''.join(doubts)}"
    return [Card("Held-out score", str(one[-1]), picture, _legend(series[::-1]), note)]


def _scored(name: str, x: Sequence[float], scores: Sequence[Interval], tone: str) -> Series:
    means, low, high = ([getattr(score, part) for score in scores] for part in ("mean", "low", "high"))
    return Series(name, x, means, tone, low, high, has_dots=True)


def _entropy(steps: Sequence[StepRecord]) -> Card:
    """Return the entropy of all sampled tokens, not only of those that were trained."""
    series = Series("Entropy", [r.step for r in steps], [r.entropy for r in steps], "violet", is_smoothed=True)
    return _curve(series, "Nats per token, over all sampled tokens.")


def _reward(steps: Sequence[StepRecord]) -> list[Card]:
    if not steps:
        return []
    rewards = [r.reward_mean for r in steps]
    series = Series("reward", [r.step for r in steps], rewards, "blue", is_smoothed=True)
    note = "Mean over the samples of a step; the bold line is a running mean."
    picture = lines([series], "Training reward", WIDE)
    return [Card("Training reward", f"{rewards[-1]:.3f}", picture, note=note)]


def _env_scores(evaluations: Sequence[EvaluationRecord]) -> list[Card]:
    """Return the held-out score of each environment, if there are several."""
    labels = list(evaluations[-1].envs) if evaluations else []
    if not labels:
        return []
    x = [e.step for e in evaluations]
    series = [
        Series(label, x, [e.envs[label].pass_at_1.mean for e in evaluations], tone, has_dots=True)
        for label, tone in zip(labels, cycle(TONES), strict=False)
    ]
    picture = lines(series, "Held-out score by environment", WIDE, (0.0, 1.0))
    return [Card("Held-out score by environment", "", picture, _legend(series), "pass@1.")]


def _env_rewards(steps: Sequence[StepRecord]) -> list[Card]:
    """Return the reward of each environment and its share of the trained groups, if there are several."""
    labels = list(steps[-1].envs) if steps else []
    if not labels:
        return []
    series = [_env_reward(label, steps, tone) for label, tone in zip(labels, cycle(TONES), strict=False)]
    groups = {label: sum(r.envs[label].groups for r in steps) for label in labels}
    total = sum(groups.values())
    shares = ", ".join(
        f"{label} {100 * groups[label] / total:.0f} % (weight {100 * steps[-1].envs[label].weight:.0f} %)"
        for label in labels
    )
    picture = lines(series, "Reward by environment", WIDE)
    return [Card("Reward by environment", "", picture, _legend(series), f"Share of the trained groups: {shares}.")]


def _env_reward(label: str, steps: Sequence[StepRecord], tone: str) -> Series:
    having = [r for r in steps if r.envs[label].trained]
    rewards = [r.envs[label].reward_mean for r in having]
    return Series(label, [r.step for r in having], rewards, tone, is_smoothed=True)


def _tools(steps: Sequence[StepRecord], evaluations: Sequence[EvaluationRecord]) -> list[Card]:
    """Return the share of episodes that used a tool, if any did."""
    if not any(r.tool_calls_mean for r in steps):
        return []
    series = [
        Series("training", [r.step for r in steps], [r.tool_use for r in steps], "gray"),
        Series("held out", [e.step for e in evaluations], [e.tool_use for e in evaluations], "blue", has_dots=True),
    ]
    picture = lines(series, "Tool use", SMALL, (0.0, 1.0))
    note = "Share of episodes in which a tool returned anything but an error."
    return [Card("Tool use", f"{steps[-1].tool_use:.2f}", picture, _legend(series[::-1]), note)]


def _roles(steps: Sequence[StepRecord]) -> list[Card]:
    """Return for each role how often it was asked, if the environments have roles."""
    names = list(dict.fromkeys(name for r in steps for name in r.roles))
    return [_role(name, [(r.step, r.roles.get(name, RoleUse())) for r in steps]) for name in names]


def _role(name: str, uses: Sequence[tuple[int, RoleUse]]) -> Card:
    x, total = [step for step, _ in uses], sum((use for _, use in uses), RoleUse())
    series = [
        Series("calls", x, [use.calls for _, use in uses], "blue"),
        Series("from the cache", x, [use.cached for _, use in uses], "gray"),
        Series("unusable", x, [use.unreadable for _, use in uses], "red"),
    ]
    note = f"Of the trained samples of a step. {role_words(total).capitalize()} in all."
    return Card(f"Role {name}", f"{uses[-1][1].calls:,} calls", lines(series, f"Role {name}"), _legend(series), note)


def _signals(steps: Sequence[StepRecord]) -> list[Card]:
    """Return a curve for each signal if there are several: the parts of the reward."""
    names = list(dict.fromkeys(name for r in steps for name in r.signals))
    return [_curve(_signal(name, steps), "Mean over the samples of a step.") for name in names if len(names) > 1]


def _signal(name: str, steps: Sequence[StepRecord]) -> Series:
    having = [r for r in steps if name in r.signals]
    return Series(name, [r.step for r in having], [r.signals[name] for r in having], "blue", is_smoothed=True)


def _length(steps: Sequence[StepRecord]) -> Card:
    x = [r.step for r in steps]
    series = [
        Series("longest", x, [r.length_max for r in steps], "gray"),
        Series("mean", x, [r.length_mean for r in steps], "blue"),
    ]
    last = f"{steps[-1].length_mean:.0f} tokens" if steps else ""
    return Card("Response length", last, lines(series, "Response length"), _legend(series[::-1]))


def _turns(steps: Sequence[StepRecord]) -> list[Card]:
    """Return turns and sequences per episode, if any episode has several."""
    if not any(max(r.turns_mean, r.sequences_mean) > 1 for r in steps):
        return []
    x = [r.step for r in steps]
    series = [
        Series("sequences", x, [r.sequences_mean for r in steps], "amber"),
        Series("turns", x, [r.turns_mean for r in steps], "blue"),
    ]
    last = f"{steps[-1].turns_mean:.1f} turns, {steps[-1].sequences_mean:.1f} sequences"
    note = "Per episode. A turn that continues the conversation before it belongs to the same sequence."
    return [Card("Turns", last, lines(series, "Turns"), _legend(series[::-1]), note)]


def _curve(series: Series, note: str = "", size: Size = SMALL) -> Card:
    last = number(series.y[-1]) if series.y else ""
    return Card(series.name, last, lines([series], series.name, size), note=note)


def _legend(entries: Sequence[Series | Bars]) -> list[tuple[str, str]]:
    return [(entry.name, entry.tone) for entry in entries]


# --- speed ------------------------------------------------------------------------------------------------------


def speed(steps: Sequence[StepRecord]) -> list[Card]:
    """Return the seconds of the steps by phase, and tokens per second."""
    return [_seconds(steps), _rates(steps)] if steps else []


def command_time(summary: Summary) -> Card:
    """Return the time of the whole command by phase, with the parts of its start."""
    total = summary.seconds_total
    rows: list[list[str | Share]] = []
    for name, tone in COMMAND_PHASES.items():
        rows.append(_time_row(name, getattr(summary.seconds, name), total, tone))
        if name == "start":
            rows += [_time_row(f"· {part}", value, total, "gray") for part, value in summary.start_parts.items()]
    rows.append(["whole command", "", f"{total:,.1f}", "100 %"])
    table = Table(["phase", "", "seconds", "share"], rows, numbers=2, total=len(rows) - 1)
    note = "The phases add up to the total; the parts of the start run in parallel, so they do not."
    return Card("Time of the command", duration(total), table, note=note)


def _time_row(name: str, seconds: float, total: float, tone: str) -> list[str | Share]:
    share = 100 * seconds / total if total else 0.0
    return [name, Share(share, tone), f"{seconds:,.1f}", f"{share:.1f} %"]


def _seconds(steps: Sequence[StepRecord]) -> Card:
    layers = [Bars(name, [getattr(r.seconds, name) for r in steps], tone) for name, tone in PHASES.items()]
    used = [layer for layer in layers if any(layer.values)]
    total = sum(r.seconds.total for r in steps)
    shares = ", ".join(f"{layer.name} {100 * sum(layer.values) / total:.0f} %" for layer in used)
    picture = stacked(used, [r.step for r in steps], "Seconds by phase")
    median = statistics.median(r.seconds.total for r in steps)
    return Card("Seconds by phase", f"{median:.1f} s a step", picture, _legend(used), shares)


def _rates(steps: Sequence[StepRecord]) -> Card:
    x = [r.step for r in steps]
    rates = [
        Series("learned", x, [r.trained_per_s for r in steps], "green"),
        Series("sampled", x, [r.sampled_per_s for r in steps], "blue"),
        Series("whole step", x, [r.tokens_per_s for r in steps], "gray"),
    ]
    picture = lines(rates, "Tokens per second", WIDE)
    last = f"{steps[-1].sampled_per_s:,.0f} sampled"
    return Card("Tokens per second", last, picture, _legend(rates), "Each per second of its own phase.")


# --- staleness --------------------------------------------------------------------------------------------------


def staleness(steps: Sequence[StepRecord]) -> list[Card]:
    """Return how old the trained samples were, in total and over time."""
    if not steps:
        return []
    ages: Counter[int] = Counter()
    for record in steps:
        ages.update(dict(enumerate(record.staleness)))
    oldest = max((age for age, count in ages.items() if count), default=0)
    names = [str(age) for age in range(oldest + 1)]
    bars = histogram(names, Bars("samples", [ages[int(name)] for name in names], "blue"), "Trained samples by age")
    mid = sum(r.mid_updates for r in steps)
    mean = Series("Mean age", [r.step for r in steps], [r.staleness_mean for r in steps], is_smoothed=True)
    note = f"Updates from sampling the oldest token to training. {mid} samples have tokens of more than one version."
    by_age = Card("Trained samples by age", f"at most {oldest}", bars, note=note)
    return [by_age, _curve(mean, "In updates, mean over the samples of a step.", WIDE)]
