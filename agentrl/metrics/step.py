"""What a run tells of itself: one record for each step, one for each evaluation."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agentrl.metrics.statistics import Interval
from agentrl.types import TOOL_ERROR, SampleId, StepReport, Trajectory, text_of


@dataclass(frozen=True, slots=True)
class PhaseSeconds:
    """Wall-clock seconds of the driver by what it waited for: they add up to the length of a step, or of a command.

    In a step `evaluate` is the evaluation before it, during which its batch may have been sampled, and no time is
    `start` (to the first publication) or `close` (from the last step to the end of the command).
    """

    rollout: float = 0.0
    learn: float = 0.0
    publish: float = 0.0
    evaluate: float = 0.0
    checkpoint: float = 0.0
    other: float = 0.0
    start: float = 0.0
    close: float = 0.0

    @property
    def total(self) -> float:
        """All phases together."""
        return math.fsum(getattr(self, name) for name in self.__slots__)

    def __sub__(self, less: PhaseSeconds) -> PhaseSeconds:
        return PhaseSeconds(*(getattr(self, name) - getattr(less, name) for name in self.__slots__))


STEP_PHASES = ("rollout", "learn", "publish", "evaluate", "checkpoint", "other")
"""The phases that a step can have."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One optimizer batch. Samples are counted in the step that decided about them; lengths are in sampled tokens.

    `staleness[a]` is the number of trained samples whose oldest token was a updates old; `mid_updates` counts trained
    samples that more than one version sampled; `groups_mixed` counts groups in which an advantage is not 0; `entropy`
    is the mean of -logprob over all sampled tokens, an unbiased estimate of the policy's in nats; `signals` are the
    means by name; `restored_tokens` are the sampled tokens that a resume took back from an earlier incarnation;
    `tool_use` is the share of samples that a tool answered by anything but an error. `samples` names the trained ones
    as the driver chose them, to be held against what the learner's ranks say; `learner.samples`, which is their word,
    is left empty.
    """

    step: int
    version: str
    at: float
    reward_mean: float
    reward_std: float
    trained: int
    learner: StepReport
    seconds: PhaseSeconds
    filtered: int = 0
    stale: int = 0
    invalid: int = 0
    unanswered: int = 0
    lost: int = 0
    groups: int = 0
    groups_mixed: int = 0
    prompt_tokens: int = 0
    action_tokens: int = 0
    length_mean: float = 0.0
    length_max: int = 0
    turns_mean: float = 1.0
    truncated: int = 0
    staleness: tuple[int, ...] = field(default=(0,))
    mid_updates: int = 0
    entropy: float = 0.0
    dropped_tokens: int = 0
    restored_tokens: int = 0
    signals: dict[str, float] = field(default_factory=dict)
    tool_calls_mean: float = 0.0
    tool_use: float = 0.0
    samples: tuple[SampleId, ...] = ()

    @property
    def sampled_tokens(self) -> int:
        """The sampled tokens of the samples that this step decided about, trained or not."""
        return self.action_tokens + self.dropped_tokens

    @property
    def fresh_tokens(self) -> int:
        """The sampled tokens that were sampled in this incarnation of the run: only these took any of its seconds."""
        return self.sampled_tokens - self.restored_tokens

    @property
    def sampled_per_s(self) -> float:
        """Fresh tokens of this batch for each second of sampling: while the driver waited for it, evaluated or wrote a
        checkpoint, or, where sampling goes on during updates, for each second of the step.
        """
        waited = self.seconds.rollout + self.seconds.evaluate + self.seconds.checkpoint
        seconds = self.seconds.total if self.staleness_mean > 0 else waited
        return self.fresh_tokens / seconds if seconds > 0 else 0.0

    @property
    def trained_per_s(self) -> float:
        """Tokens the learner went through for each second it took; 0.0 where nothing was to be learned."""
        has_rate = self.learner.has_learned and self.seconds.learn > 0
        return self.learner.learned_tokens / self.seconds.learn if has_rate else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Fresh tokens for each second of the whole step."""
        return self.fresh_tokens / self.seconds.total if self.seconds.total > 0 else 0.0

    @property
    def staleness_mean(self) -> float:
        """The mean age of the trained samples, in updates."""
        return sum(a * n for a, n in enumerate(self.staleness)) / max(1, sum(self.staleness))


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """One version on held-out tasks; `step` is the number of steps trained before it.

    pass@1 and pass@k are means over `tasks_at_1` and `tasks_at_k` tasks, those with enough episodes that could be
    judged: `invalid` ones could not; `unanswered` ones (no token was sampled) count as failed. `cause` says which cause
    of either is the commonest.
    """

    step: int
    version: str
    at: float
    split: str
    tasks: int
    samples: int
    pass_at_1: Interval
    pass_at_k: Interval
    k: int
    reward_mean: float = 0.0
    length_mean: float = 0.0
    invalid: int = 0
    seconds: float = 0.0
    signals: dict[str, float] = field(default_factory=dict)
    tool_use: float = 0.0
    unanswered: int = 0
    cause: str = ""
    tasks_at_1: int = 0
    tasks_at_k: int = 0

    @property
    def validity(self) -> str:
        """'3 of 4 episodes valid', with the tasks that are left out and the cause; '' where nothing is to be said."""
        if not (self.invalid or self.unanswered):
            return ""
        episodes = self.tasks * self.samples
        silent = f", {self.unanswered} of them unanswered" if self.unanswered else ""
        said = {1: self.tasks_at_1, self.k: self.tasks_at_k}
        left_out = [f"pass@{k} over {count} of {self.tasks} tasks" for k, count in said.items() if count < self.tasks]
        return "; ".join([f"{episodes - self.invalid} of {episodes} episodes valid{silent}", *left_out, self.cause])


def tool_use(trajectories: Sequence[Trajectory]) -> float:
    """The share of episodes in which a tool answered the model by anything but an error."""
    return statistics.fmean(
        any(not text_of(result).startswith(TOOL_ERROR) for result in t.tool_results) for t in trajectories
    )


def signal_means(trajectories: Iterable[Trajectory]) -> dict[str, float]:
    """The mean of every signal that has a value, by name."""
    values: dict[str, list[float]] = {}
    for trajectory in trajectories:
        for signal in trajectory.signals:
            if signal.value is not None:
                values.setdefault(signal.name, []).append(signal.value)
    return {name: statistics.fmean(said) for name, said in values.items()}
