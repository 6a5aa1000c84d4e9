"""Two evaluations side by side: which tasks flipped, on a terminal and as one HTML file without network and script."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from agentrl.report.charts import number
from agentrl.report.flips import SAME
from agentrl.report.html import POLICY, templates
from agentrl.report.parts import Table, Tile
from agentrl.report.transcript import evidence_words, value_words
from agentrl.report.words import visible
from agentrl.types import Message, Trajectory

MOST_LINES, MOST_TASKS, LONGEST = 10, 100, 80
EXACT = "{:.3f}".format


class Verdict(StrEnum):
    """How a task changed between two evaluations."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "the same"
    UNKNOWN = "without a result"
    """One side has no valid episode of it."""


TONES = {Verdict.WORSE: "bad", Verdict.BETTER: "good", Verdict.SAME: "", Verdict.UNKNOWN: ""}


@dataclass(frozen=True, slots=True)
class Answer:
    """One episode of a task: its messages and signals without tokens, and whether it solved the task.

    An episode that does not count has a `fault`; an unanswered one counts as unsolved, and has no reward.
    """

    episode: Trajectory
    is_solved: bool
    tokens: int
    fault: str = ""
    is_answered: bool = True

    @property
    def prompt(self) -> tuple[Message, ...]:
        """The messages before the policy's first turn."""
        return self.episode.messages[: self._begin]

    @property
    def turns(self) -> tuple[Message, ...]:
        """The messages from the policy's first turn on."""
        return self.episode.messages[self._begin :]

    @property
    def _begin(self) -> int:
        replies = [n for n, message in enumerate(self.episode.messages) if message["role"] == "assistant"]
        turns = self.episode.turns
        return replies[-turns] if 0 < turns <= len(replies) else len(self.episode.messages)

    @property
    def headline(self) -> str:
        """'reward 1 · solved · 24 tokens · env_done'."""
        if self.fault:
            return f"does not count: {self.fault}"
        solved = "solved" if self.is_solved else "not solved"
        reward = f"reward {number(self.episode.reward)}" if self.is_answered else "unanswered"
        return f"{reward} · {solved} · {self.tokens} tokens · {self.episode.stop_reason}"

    @property
    def rewards(self) -> Table:
        """The value of each signal, with its evidence."""
        rows = [[s.name, evidence_words(s) or s.reason, value_words(s)] for s in self.episode.judgements]
        return Table(["signal", "evidence", "value"], rows, numbers=1)


@dataclass(frozen=True, slots=True)
class Score:
    """The share of solved samples of a task, and the mean reward of the answered ones, NaN if there are none."""

    solved: float
    reward: float
    answered: float = 1.0
    """The share of answered samples."""

    def __str__(self) -> str:
        return f"{self.solved:.2f}"


@dataclass(frozen=True)
class Pair:
    """The answers of both sides to one task."""

    env: str
    task_id: str
    first: Sequence[Answer]
    second: Sequence[Answer]

    @cached_property
    def scores(self) -> tuple[Score, Score] | None:
        """The scores of both sides; None if one has no episode that counts."""
        one, other = _score(self.first), _score(self.second)
        return (one, other) if one and other else None

    @property
    def change(self) -> tuple[float, float]:
        """By how much the share of solved samples and the mean reward rose.

        A reward that moves against the share of answered samples is 0: which ones are answered may explain it.
        """
        if self.scores is None:
            return 0.0, 0.0
        one, other = self.scores
        rise = other.reward - one.reward
        is_selected = rise * (other.answered - one.answered) < 0
        return other.solved - one.solved, 0.0 if is_selected or math.isnan(rise) else rise

    @property
    def verdict(self) -> Verdict:
        """Whether the task became worse: by its solved samples, and by its rewards if they are equal."""
        moved = next((change for change in self.change if abs(change) > SAME), 0.0)
        if self.scores is None:
            return Verdict.UNKNOWN
        return Verdict.BETTER if moved > 0 else Verdict.WORSE if moved < 0 else Verdict.SAME

    @property
    def has_one_prompt(self) -> bool:
        """True if all samples of both sides begin with the same messages."""
        prompts = [answer.prompt for answer in (*self.first, *self.second)]
        return all(prompt == prompts[0] for prompt in prompts)

    @property
    def shown(self) -> tuple[Answer, Answer]:
        """The two answers that show the change: the best and the worst of the sides."""
        first, second = sorted(self.first, key=_rank), sorted(self.second, key=_rank)
        if self.verdict is Verdict.WORSE:
            return first[-1], second[0]
        return (first[0], second[-1]) if self.verdict is Verdict.BETTER else (self.first[0], self.second[0])


def _score(answers: Sequence[Answer]) -> Score | None:
    counted = [answer for answer in answers if not answer.fault]
    if not counted:
        return None
    rewards = [answer.episode.reward for answer in counted if answer.is_answered]
    solved = statistics.fmean(answer.is_solved for answer in counted)
    return Score(solved, _fmean(rewards), len(rewards) / len(counted))


def _fmean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def _rank(answer: Answer) -> tuple[bool, bool, bool, float]:
    return not answer.fault, answer.is_solved, answer.is_answered, answer.episode.reward


@dataclass(frozen=True)
class Comparison:
    """Two evaluations, by the names of their runs and steps: the tasks of both, and the number that only one has."""

    first: str
    second: str
    pairs: Sequence[Pair]
    only_first: int = 0
    only_second: int = 0
    unreadable_first: int = 0
    """Records of the first evaluation that are damaged."""
    unreadable_second: int = 0

    @cached_property
    def flipped(self) -> dict[Verdict, list[Pair]]:
        """The tasks that became worse, then those that became better, the largest changes first."""
        changed = sorted(self.pairs, key=lambda pair: [-abs(change) for change in pair.change])
        return {verdict: [pair for pair in changed if pair.verdict is verdict] for verdict in Verdict}

    @cached_property
    def scores(self) -> tuple[Score, Score] | None:
        """The mean scores over the tasks with a result on both sides; None if there are none."""
        both = [pair.scores for pair in self.pairs if pair.scores]
        if not both:
            return None
        first, second = zip(*both, strict=True)
        return _mean(first), _mean(second)

    @property
    def has_several_envs(self) -> bool:
        """True if the tasks come from several environments."""
        return len({pair.env for pair in self.pairs}) > 1

    @property
    def notes(self) -> list[str]:
        """What a reader must know: tasks of one side alone, prompts that differ, and damaged records."""
        prompts = sum(not pair.has_one_prompt for pair in self.pairs)
        counted = (
            (self.only_first, f"only in {self.first}"),
            (self.only_second, f"only in {self.second}"),
            (prompts, "with prompts that differ: their answers are to other questions"),
        )
        damaged = ((self.unreadable_first, self.first), (self.unreadable_second, self.second))
        return [
            *(f"{_tasks(count)} {what}" for count, what in counted if count),
            *(f"{_counted(count, 'record')} of {name} cannot be read: left out" for count, name in damaged if count),
        ]


def _tasks(count: int) -> str:
    return _counted(count, "task")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _mean(scores: Sequence[Score]) -> Score:
    rewards = [score.reward for score in scores if not math.isnan(score.reward)]
    return Score(statistics.fmean(score.solved for score in scores), _fmean(rewards))


def _change(one: Score, other: Score, write: Callable[[float], str] = number) -> str:
    """Return both rewards as text."""
    return " → ".join("none" if math.isnan(score.reward) else write(score.reward) for score in (one, other))


# --- the terminal ---------------------------------------------------------------------------------------------


def lines(found: Comparison) -> Iterator[str]:
    """Yield the comparison as text: scores, counts, and the tasks that flipped."""
    yield f"{visible(found.first)} → {visible(found.second)}"
    yield f"{_tasks(len(found.pairs))} in both"
    yield from (f"  {visible(note)}" for note in found.notes)
    if found.scores:
        one, other = found.scores
        yield f"  solved  {one.solved:.3f} → {other.solved:.3f}"
        yield f"  reward  {_change(one, other, EXACT)}"
    for verdict, pairs in found.flipped.items():
        if not pairs:
            continue
        yield f"\n{len(pairs)} {verdict}"
        if verdict in (Verdict.WORSE, Verdict.BETTER):
            yield from (f"  {_line(pair, found)}" for pair in pairs[:MOST_LINES])
            yield from [f"  and {len(pairs) - MOST_LINES} more"] if len(pairs) > MOST_LINES else []


def _line(pair: Pair, found: Comparison) -> str:
    assert pair.scores is not None, "the task flipped"
    one, other = pair.scores
    return f"solved {one} → {other}, reward {_change(one, other)}  {_name(pair, found)}"


def _name(pair: Pair, found: Comparison) -> str:
    """Return the task, with its environment if there are several, in one line."""
    name = visible(" ".join(pair.task_id.split()))[:LONGEST] or "(no id)"
    return f"{visible(pair.env)} · {name}" if found.has_several_envs else name


# --- the page -------------------------------------------------------------------------------------------------


def render(found: Comparison) -> str:
    """Return the whole page, with the answers to the tasks that changed most."""
    ordered = [pair for pairs in found.flipped.values() for pair in pairs]
    details = [_detail(pair, found) for pair in ordered[:MOST_TASKS]]
    return (
        templates()
        .get_template("diff.html.jinja")
        .render(
            policy=POLICY,
            first=found.first,
            second=found.second,
            notes=found.notes,
            written=time.strftime("%Y-%m-%d %H:%M", time.localtime()),
            tiles=_tiles(found),
            flips=_flips(found),
            details=details,
            left_out=len(ordered) - len(details),
        )
    )


def _tiles(found: Comparison) -> list[Tile]:
    tiles = []
    if found.scores:
        one, other = found.scores
        note = f"share of solved samples, mean of {_tasks(sum(pair.scores is not None for pair in found.pairs))}"
        tiles.append(Tile("Solved", f"{one.solved:.3f} → {other.solved:.3f}", note, is_wide=True))
        tiles.append(Tile("Reward", _change(one, other, EXACT), "mean", is_wide=True))
    counts = [(verdict, len(pairs)) for verdict, pairs in found.flipped.items()]
    shown = [(verdict, count) for verdict, count in counts if count or verdict is not Verdict.UNKNOWN]
    return tiles + [Tile(verdict.capitalize(), str(count), "tasks", TONES[verdict]) for verdict, count in shown]


def _flips(found: Comparison) -> Table:
    pairs = [*found.flipped[Verdict.WORSE], *found.flipped[Verdict.BETTER]]
    rows = []
    for pair in pairs:
        assert pair.scores is not None, "the task flipped"
        one, other = pair.scores
        solved = [f"{one} → {other}", _change(one, other)]
        rows.append([_name(pair, found), str(pair.verdict), *solved])
    return Table(["task", "became", "solved", "reward"], rows, numbers=2)


def _detail(pair: Pair, found: Comparison) -> dict[str, Any]:
    """Return what the template shows of a task."""
    scores = " → ".join(map(str, pair.scores)) if pair.scores else ""
    samples = f"{len(pair.first)} and {len(pair.second)} samples"
    first, second = pair.shown
    return {
        "title": _name(pair, found),
        "note": " · ".join(filter(None, (str(pair.verdict), scores and f"solved {scores}", samples))),
        "prompt": first.prompt if pair.has_one_prompt else (),
        "has_one_prompt": pair.has_one_prompt,
        "sides": [(found.first, first), (found.second, second)],
    }
