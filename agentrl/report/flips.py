"""What another version of a verifier makes of stored trajectories: text for a terminal, and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from agentrl.report.charts import number
from agentrl.report.words import visible
from agentrl.types import SampleId

SAME = 1e-9
"""Difference of two rewards up to which they are equal."""
MOST_EXAMPLES, MOST_REASONS, LONGEST = 10, 5, 200


class Change(StrEnum):
    """How a reward changed."""

    UNCHANGED = "unchanged"
    FLIPPED = "flipped"
    FAILED = "failed"
    """It was valid, and the other verifier has none."""
    DECIDED = "decided"
    """It was invalid, and the other verifier has one."""
    REFUSED = "refused"
    """The episode cannot be repeated, so that nothing was scored."""


MEANINGS = {
    Change.UNCHANGED: "the same reward, or invalid both times",
    Change.FLIPPED: "another reward",
    Change.FAILED: "no valid reward any more",
    Change.DECIDED: "a reward where there was none",
    Change.REFUSED: "not scored: the episode cannot be repeated",
}


@dataclass(frozen=True, slots=True)
class Rescored:
    """A stored trajectory with its reward and success as stored (`was`) and by the other verifier (`now`).

    None stands for an invalid reward. `reason` says why there is none now, and `signals` names those that changed.
    """

    sample: SampleId
    attempt: int
    env: str
    task_id: str
    was: float | None
    now: float | None
    was_solved: bool = False
    is_solved: bool = False
    reason: str = ""
    signals: str = ""
    is_refused: bool = False

    @property
    def change(self) -> Change:
        """How the reward changed."""
        if self.is_refused:
            return Change.REFUSED
        if self.was is None or self.now is None:
            return _CHANGES[self.was is None, self.now is None]
        is_same = abs(self.was - self.now) <= SAME and self.was_solved == self.is_solved
        return Change.UNCHANGED if is_same else Change.FLIPPED

    @property
    def distance(self) -> float:
        """How far the reward moved."""
        return abs((self.now or 0.0) - (self.was or 0.0))


_CHANGES = {(True, True): Change.UNCHANGED, (True, False): Change.DECIDED, (False, True): Change.FAILED}


@dataclass(frozen=True, slots=True)
class Reverification:
    """All trajectories that were scored again, and by what: a line for each environment."""

    run: str
    verifiers: Sequence[str]
    rescored: Sequence[Rescored]
    evaluation: int | None = None
    """The step of the evaluation that they are from; None for training."""
    damage: str = ""
    """Which trajectories could not be read, "" if all could."""

    @property
    def has_changed(self) -> bool:
        """True if any reward is another one now, or none."""
        return any(one.change not in (Change.UNCHANGED, Change.REFUSED) for one in self.rescored)

    @property
    def fault(self) -> str:
        """Why the result is none, or not of all trajectories; "" if it is of all."""
        if all(one.is_refused for one in self.rescored):
            reasons = "; ".join(f"{text} refused: {reason}" for text, reason in reasons_of(self, Change.REFUSED))
            return "; ".join(filter(None, ("nothing to score", reasons, self.damage))).replace("; ", ": ", 1)
        return self.damage and f"{self.damage}; the others were scored"


def lines(found: Reverification) -> Iterator[str]:
    """Yield the result: counts, by environment if there are several, then examples and causes."""
    yield from found.verifiers
    envs = sorted({one.env for one in found.rescored})
    for env in envs:
        of_env = [one for one in found.rescored if one.env == env]
        yield f"\n{len(of_env):,} trajectories{f' of {visible(env)}' if len(envs) > 1 else ''}"
        yield from _counts(of_env)
    yield from _examples(found)
    for change in (Change.FAILED, Change.REFUSED):
        if reasons := reasons_of(found, change):
            yield f"\n{change}"
            yield from (f"  {count:>6}  {reason}" for count, reason in reasons)


def reasons_of(found: Reverification, change: Change) -> list[tuple[str, str]]:
    """Return the most common reasons of a change: how many trajectories have each, and the reason with the first."""
    grouped: dict[str, list[Rescored]] = {}
    for one in found.rescored:
        if one.change is change:
            grouped.setdefault(_short(one.reason), []).append(one)
    ordered = sorted(grouped.items(), key=lambda item: -len(item[1]))
    reasons = [
        (f"{len(of_reason):,}", f"{reason}, first sample {_name(min(of_reason, key=_order), found)}")
        for reason, of_reason in ordered[:MOST_REASONS]
    ]
    rest = len(ordered) - MOST_REASONS
    return reasons + ([("and", f"{rest} other reasons (--json lists all)")] if rest > 0 else [])


def _counts(rescored: Sequence[Rescored]) -> Iterator[str]:
    for change, meaning in MEANINGS.items():
        of_change = [one for one in rescored if one.change is change]
        if not of_change and change is not Change.UNCHANGED:
            continue
        yield f"  {len(of_change):>6,}  {change:<9}  {meaning}"
        if change in (Change.FLIPPED, Change.DECIDED, Change.FAILED):
            moves = Counter(_move(one) for one in of_change)
            yield from (f"  {'':>6}    {count:>6,}  reward {move}" for move, count in moves.most_common(MOST_EXAMPLES))
    lost = sum(one.was_solved and not one.is_solved for one in rescored if one.change is Change.FLIPPED)
    won = sum(one.is_solved and not one.was_solved for one in rescored if one.change is Change.FLIPPED)
    if lost or won:
        yield f"  {'':>6}  solved before and not now: {lost:,}; now and not before: {won:,}"


def _examples(found: Reverification) -> Iterator[str]:
    """Yield the trajectories whose reward moved furthest."""
    changed = [one for one in found.rescored if one.change in (Change.FLIPPED, Change.DECIDED)]
    if not changed:
        return
    yield f"\nlargest changes (agentrl show {found.run} SAMPLE)"
    for one in sorted(changed, key=lambda one: (-one.distance, one.sample))[:MOST_EXAMPLES]:
        signals = _short(f": {one.signals}") if one.signals else ""
        yield f"  {_name(one, found)}  {_move(one)}  task {_short(one.task_id)}{signals}"


def _order(one: Rescored) -> tuple[SampleId, int]:
    return one.sample, one.attempt


def _name(one: Rescored, found: Reverification) -> str:
    """Return the name of a trajectory, as `agentrl show` takes it."""
    step = "" if found.evaluation is None else f"{found.evaluation}/"
    return f"{step}{one.sample}{f'.{one.attempt}' if one.attempt else ''}"


def _move(one: Rescored) -> str:
    return f"{value_of(one.was)} → {value_of(one.now)}"


def value_of(reward: float | None) -> str:
    """Return a reward or the value of a signal in short form; None is invalid."""
    return "invalid" if reward is None else number(reward)


def _short(text: str) -> str:
    """Return one line of bounded length without control codes."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


def as_json(found: Reverification) -> dict[str, Any]:
    """Return the whole result as plain values; unchanged trajectories are only counted."""
    counts = Counter(one.change for one in found.rescored)
    return {
        "run": found.run,
        "verifiers": list(found.verifiers),
        "fault": found.fault,
        "counts": {str(change): counts[change] for change in Change},
        "changed": [
            {**asdict(one), "sample": str(one.sample), "change": str(one.change)}
            for one in found.rescored
            if one.change is not Change.UNCHANGED
        ],
    }
