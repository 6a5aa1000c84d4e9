"""Learnability: whether a model's episodes can teach it something, judged from samples of training tasks."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from agentrl.checking.attempts import is_solved
from agentrl.checking.check import Check, FailedError, Level, SkippedError, Subject
from agentrl.metrics.statistics import pass_at_k_interval
from agentrl.rollout.faults import fault_of, most_common
from agentrl.types import StopReason, Trajectory

MOST_INVALID = 0.05
"""Share of episodes without a reward above which a check fails."""
MOST_SOLVED = 0.95
"""pass@1 above which nothing is left to learn."""
LEAST_SIGNAL = 0.1
"""Share of groups with different rewards below which most of a batch teaches nothing."""
MOST_LENGTH = 0.7
"""Correlation of reward and length within groups above which the policy would learn to write more."""
LEAST_EPISODES = 16
"""Episodes that a correlation needs."""
MOST_CUT = 0.5
"""Share of episodes that a limit of tokens may cut."""
SAME = 1e-9


async def episodes(subject: Subject) -> str:
    """Check that almost all episodes of a model have a reward."""
    played = _played(subject)
    faults = [fault for trajectory in played if (fault := fault_of(trajectory))]
    share = len(faults) / len(played)
    told = f"{len(played)} episodes of {len(_groups(played))} tasks, {len(faults)} without a reward ({share:.0%})"
    if share > MOST_INVALID:
        raise FailedError(f"{told}; at most {MOST_INVALID:.0%} may be. {most_common(faults)}")
    return told


async def solved(subject: Subject) -> str:
    """Estimate pass@1 and pass@k, and check that the model does not solve everything."""
    groups = _valid_groups(subject)
    correct, samples = [sum(map(is_solved, group)) for group in groups], [len(group) for group in groups]
    k = max(samples)
    once, often = pass_at_k_interval(correct, samples), pass_at_k_interval(correct, samples, k)
    told = f"pass@1 {once}, pass@{k} {often}, {len(groups)} tasks"
    if once.mean > MOST_SOLVED:
        raise FailedError(f"{told}; above {MOST_SOLVED} the model has learned what there is to learn")
    return told


async def signal(subject: Subject) -> str:
    """Check that the rewards of enough groups differ: algorithms compare the members of a group."""
    groups = _valid_groups(subject)
    flat = [group[0].reward for group in groups if not _has_signal(group)]
    share = 1 - len(flat) / len(groups)
    told = f"{len(groups) - len(flat)} of {len(groups)} groups have different rewards ({share:.0%})"
    common = "".join(f"; in {count} every reward is {reward:g}" for reward, count in Counter(flat).most_common(2))
    if share < LEAST_SIGNAL:
        raise FailedError(f"{told}, fewer than {LEAST_SIGNAL:.0%}{common}")
    return told + common


async def length(subject: Subject) -> str:
    """Correlate reward and length within groups: more text alone should not earn more."""
    groups = [group for group in _valid_groups(subject) if _has_signal(group)]
    if sum(map(len, groups)) < LEAST_EPISODES:
        raise SkippedError(f"fewer than {LEAST_EPISODES} episodes are in groups whose rewards differ")
    lengths = [value for group in groups for value in _centred([t.action_tokens for t in group])]
    rewards = [value for group in groups for value in _centred([t.reward for t in group])]
    if max(map(abs, lengths)) <= SAME:
        return "all answers of a group have the same length"
    found = statistics.correlation(lengths, rewards)
    told = f"correlation {found:+.2f} within groups of {len(lengths)} episodes"
    if found > MOST_LENGTH:
        raise FailedError(f"{told}, above {MOST_LENGTH:+.2f}: long answers earn more, whatever they say")
    return told


async def tokens(subject: Subject) -> str:
    """Check that most answers end before a limit of tokens cuts them."""
    played = [trajectory for group in _valid_groups(subject) for trajectory in group]
    limits = (StopReason.MAX_TOKENS, StopReason.CONTEXT_OVERFLOW)
    cut = Counter(t.stop_reason for t in played if t.stop_reason in limits)
    share = cut.total() / len(played)
    lengths, turns = sorted(t.action_tokens for t in played), statistics.fmean(t.turns for t in played)
    told = (
        f"median {lengths[len(lengths) // 2]}, longest {lengths[-1]} tokens in {turns:.1f} turns; {share:.0%} are cut"
    )
    if share > MOST_CUT:
        raise FailedError(
            f"{told}, more than {MOST_CUT:.0%} ({', '.join(f'{n} {reason}' for reason, n in cut.items())})"
        )
    return told


def _played(subject: Subject) -> Sequence[Trajectory]:
    if not subject.episodes:
        raise FailedError("the model played no episode")
    return subject.episodes


def _groups(played: Sequence[Trajectory]) -> list[list[Trajectory]]:
    """Return the samples of each task."""
    groups: dict[int, list[Trajectory]] = defaultdict(list)
    for trajectory in played:
        groups[trajectory.sample.group].append(trajectory)
    return list(groups.values())


def _valid_groups(subject: Subject) -> list[list[Trajectory]]:
    """Return the groups without episodes that cannot be trained. Raises SkippedError if none is left."""
    valid = [trajectory for trajectory in _played(subject) if fault_of(trajectory) is None]
    if not valid:
        raise SkippedError("no episode has a reward")
    return _groups(valid)


def _has_signal(group: Sequence[Trajectory]) -> bool:
    rewards = [trajectory.reward for trajectory in group]
    return max(rewards) - min(rewards) > SAME


def _centred(values: Sequence[float]) -> Iterator[float]:
    """Yield the values less their mean."""
    mean = statistics.fmean(values)
    return (value - mean for value in values)


CHECKS = (
    Check(
        "episodes", Level.LEARNABILITY, f"Do at least {1 - MOST_INVALID:.0%} of a model's episodes have a reward?",
        "Fix what the text names; docs/operate.md lists why episodes end.", episodes,
    ),
    Check(
        "solved", Level.LEARNABILITY, f"Is pass@1 at most {MOST_SOLVED}, so that something is left to learn?",
        "Make the tasks harder, by a key of Config.", solved,
    ),
    Check(
        "signal", Level.LEARNABILITY, f"Do the rewards differ in at least {LEAST_SIGNAL:.0%} of the groups?",
        "Make tasks easier or harder, or reward steps on the way; docs/when-it-does-not-learn.md has more.", signal,
    ),
    Check(
        "length", Level.LEARNABILITY, f"Do rewards correlate with length, within groups, by at most {MOST_LENGTH}?",
        "Reward the answer alone, and once; a limit of tokens or a cost of length helps.", length,
    ),
    Check(
        "tokens", Level.LEARNABILITY, f"Does a limit of tokens cut at most {MOST_CUT:.0%} of the episodes?",
        "Raise --rollout.max_tokens or --model.max_context, or ask for short answers in the prompt.", tokens,
    ),
)  # fmt: skip
