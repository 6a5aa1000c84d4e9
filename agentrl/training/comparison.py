"""Comparison: the answers of two evaluations to the same tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agentrl.errors import ConfigError
from agentrl.records.folder import RunFolder, existing_run, unwritable
from agentrl.records.jsonl import atomic
from agentrl.records.store import scan, unreadable
from agentrl.report.diff import Answer, Comparison, Pair, render
from agentrl.training.evaluation import is_success, judgement_fault
from agentrl.types import Trajectory

Task = tuple[str, str]
"""Label of the environment, and id of the task."""


@dataclass(frozen=True, slots=True)
class Side:
    """The evaluation of a run after a step."""

    folder: RunFolder
    step: int

    @property
    def name(self) -> str:
        """The run and, if it has several evaluations, the step."""
        several = len(self.folder.evaluated_steps()) > 1
        return f"{self.folder.path}@{self.step}" if several else str(self.folder.path)

    def answers(self) -> Mapping[Task, list[Answer]]:
        """Return the answers to each task, read from the disk."""
        found: dict[Task, list[Answer]] = defaultdict(list)
        for trajectory in scan(self.folder.evaluated(self.step)):
            found[trajectory.env, trajectory.task_id].append(_answer(trajectory))
        return found

    @property
    def unreadable(self) -> int:
        """The number of records that are damaged."""
        return sum(unreadable(self.folder.evaluated(self.step)).values())


def sides_of(names: Sequence[str]) -> tuple[Side, Side]:
    """Return two evaluations: `RUN@STEP`, or the last one of `RUN`; of a single run its first and its last.

    Raises ConfigError for a run without the evaluation.
    """
    if len(names) == 1 and not _split(names[0])[1]:
        folder, steps = _evaluated(names[0])
        if len(steps) < 2:
            raise ConfigError(f"{names[0]} has a single evaluation: name another run to compare it with")
        return Side(folder, steps[0]), Side(folder, steps[-1])
    if len(names) != 2:
        raise ConfigError("name two evaluations, RUN[@STEP] RUN[@STEP], or a single run with several")
    first, second = map(_side, names)
    if (first.folder.path.resolve(), first.step) == (second.folder.path.resolve(), second.step):
        raise ConfigError(f"{names[0]} and {names[1]} are the same evaluation: name two that differ")
    return first, second


def _side(name: str) -> Side:
    text, step = _split(name)
    folder, steps = _evaluated(text)
    if step and int(step) not in steps:
        known = ", ".join(map(str, steps))
        raise ConfigError(f"{text} has no evaluation after step {step}, only after {known}")
    return Side(folder, int(step) if step else steps[-1])


def _split(name: str) -> tuple[str, str]:
    """(path, step) of "runs/a@40"; the step is "" if there is none, or if the folder itself has such a name."""
    text, _, step = name.rpartition("@")
    return (text, step) if text and step.isdecimal() and not Path(name).exists() else (name, "")


def _evaluated(path: str) -> tuple[RunFolder, list[int]]:
    folder = RunFolder(existing_run(path))
    steps = folder.evaluated_steps()
    if not steps:
        raise ConfigError(f"{path} has no evaluation: score it with `agentrl eval {path}`")
    return folder, steps


def compare(first: Side, second: Side) -> Comparison:
    """Pair the answers of two evaluations by environment and task.

    The only environments of two runs are paired whatever their names are. Raises ConfigError if there is no task in
    both.
    """
    one, other = first.answers(), second.answers()
    if all(len({env for env, _ in answers}) == 1 for answers in (one, other)):
        env = next(iter(other))[0]
        one = {(env, task): answers for (_, task), answers in one.items()}
    shared = [task for task in one if task in other]
    if not shared:
        raise ConfigError(f"{first.name} and {second.name} have no task in common: compare runs in one environment")
    pairs = [Pair(*task, one[task], other[task]) for task in shared]
    alone = len(one) - len(shared), len(other) - len(shared)
    return Comparison(first.name, second.name, pairs, *alone, first.unreadable, second.unreadable)


def _answer(trajectory: Trajectory) -> Answer:
    fault = judgement_fault(trajectory)
    is_answered = fault is None or fault.outcome != "unanswered"
    reason = fault.reason if fault and is_answered else ""
    without_tokens = replace(trajectory, sequences=())
    is_solved = not reason and is_success(trajectory)
    return Answer(without_tokens, is_solved, trajectory.action_tokens, reason, is_answered)


def write_page(found: Comparison, file: Path) -> None:
    """Write the HTML page of a comparison. Raises ConfigError if the file cannot be written."""
    try:
        with atomic(file) as page:
            page.write(render(found).encode())
    except OSError as error:
        raise unwritable(file, error) from error
