"""What an episode leaves: tokens with their origin, signals, one reason for its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from agentrl.types.messages import Message
from agentrl.types.requests import SampleId, Version, VersionSpan

Scope = Literal["turn", "episode", "group"]


@dataclass(frozen=True, slots=True)
class Signal:
    """The only reward currency. An invalid signal has no value: it is never a 0."""

    name: str
    value: float | None
    weight: float = 1.0
    scope: Scope = "episode"
    valid: bool = True
    reason: str = ""
    evidence: Any = None
    verifier: str = ""
    turn: int | None = None

    @classmethod
    def invalid(cls, name: str, reason: str, **fields: Any) -> Signal:
        """A signal that could not be computed, and why."""
        return cls(name, None, valid=False, reason=reason, **fields)


class StopReason(StrEnum):
    """Why an episode ended. The first two terminate it; all others truncate it."""

    ENV_DONE = "env_done"
    AGENT_DONE = "agent_done"
    MAX_TURNS = "max_turns"
    MAX_TOKENS = "max_tokens"
    CONTEXT_OVERFLOW = "context_overflow"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    ENV_ERROR = "env_error"
    VERIFIER_ERROR = "verifier_error"
    MODEL_ERROR = "model_error"
    INFRA_ERROR = "infra_error"

    @property
    def is_terminal(self) -> bool:
        """True when the episode came to its own end (terminated), False when it was cut (truncated)."""
        return self in (StopReason.ENV_DONE, StopReason.AGENT_DONE)

    @property
    def is_scored(self) -> bool:
        """True when the env is asked for a score; the others are invalid (a deadline unless the env says otherwise)."""
        return self.is_terminal or self in (StopReason.MAX_TURNS, StopReason.MAX_TOKENS, StopReason.CONTEXT_OVERFLOW)


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of tokens with one origin: context (mask 0, no logprobs, no versions) or sampled by the policy (mask 1)."""

    ids: tuple[int, ...]
    is_action: bool
    logprobs: tuple[float, ...] = ()
    versions: tuple[VersionSpan, ...] = ()
    turn: int = 0
    policy: str = "policy"
    agent: str = "agent"


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """Segments that were one context in the engine; a rewritten history begins another sequence."""

    segments: tuple[Segment, ...]

    @property
    def ids(self) -> list[int]:
        """All token ids, length T."""
        return [token for segment in self.segments for token in segment.ids]

    @property
    def mask(self) -> list[int]:
        """1 for each sampled token, length T."""
        return [int(segment.is_action) for segment in self.segments for _ in segment.ids]

    @property
    def logprobs(self) -> list[float]:
        """The sampler's logprob of each sampled token, 0.0 elsewhere, length T."""
        return [value for s in self.segments for value in (s.logprobs if s.is_action else [0.0] * len(s.ids))]

    @property
    def versions(self) -> list[Version | None]:
        """The version that sampled each token, None for context, length T."""
        out: list[Version | None] = []
        for segment in self.segments:
            if segment.is_action:
                out.extend(span.version for span in segment.versions for _ in range(span.start, span.end))
            else:
                out.extend([None] * len(segment.ids))
        return out


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds an episode spent, by where."""

    total_s: float = 0.0
    engine_s: float = 0.0
    env_s: float = 0.0
    score_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One finished attempt at a sample: every token, every reward, one reason for its end."""

    sample: SampleId
    attempt: int
    split: str
    task_index: int
    task_id: str
    sequences: tuple[TokenSequence, ...]
    messages: tuple[Message, ...]
    signals: tuple[Signal, ...]
    stop_reason: StopReason
    temperature: float = 1.0
    turns: int = 0
    timings: Timings = field(default_factory=Timings)
    error: str = ""
    traceback: str = ""
    """Of what the environment raised, where it did."""
    success: Signal | None = None
    """Whether the episode is a success, where the environment itself says so and was asked."""

    @property
    def reward(self) -> float:
        """The weighted sum of the valid signals."""
        return sum(s.weight * s.value for s in self.signals if s.valid and s.value is not None)

    @property
    def judgements(self) -> tuple[Signal, ...]:
        """All signals, and the verdict on its success where there is one."""
        return self.signals if self.success is None else (*self.signals, self.success)

    @property
    def tool_results(self) -> tuple[Message, ...]:
        """What tools answered to the model; not what examples in the prompt show."""
        said = [place for place, message in enumerate(self.messages) if message["role"] == "assistant"]
        own = self.messages[said[-self.turns] :] if 0 < self.turns <= len(said) else ()
        return tuple(message for message in own if message["role"] == "tool")

    @property
    def is_valid(self) -> bool:
        """True when it was scored and no signal that counts is invalid: only then is its reward a number."""
        return self.is_scored and all(s.valid or s.weight == 0 for s in self.signals)

    @property
    def is_scored(self) -> bool:
        """True when at least one signal was computed and the ending allows a score."""
        deadline_counts = self.stop_reason is StopReason.DEADLINE and bool(self.signals)
        return (self.stop_reason.is_scored or deadline_counts) and bool(self.signals)

    @property
    def is_unanswered(self) -> bool:
        """True when nothing failed and yet no token was sampled, as after a prompt that leaves no room to answer.

        There is nothing to train, and no reward that the policy could have earned.
        """
        has_ended = self.stop_reason.is_scored or self.is_scored
        return has_ended and self.action_tokens == 0

    @property
    def is_trainable(self) -> bool:
        """True when it has a valid reward and a sampled token to credit it to."""
        return self.is_valid and self.action_tokens > 0

    @property
    def action_tokens(self) -> int:
        """The number of sampled tokens."""
        return sum(len(segment.ids) for segment in self.segments if segment.is_action)

    @property
    def segments(self) -> Iterator[Segment]:
        """All segments of all sequences, in order."""
        return (segment for sequence in self.sequences for segment in sequence.segments)

    @property
    def versions(self) -> set[Version]:
        """Every version that sampled one of its tokens."""
        return {span.version for segment in self.segments for span in segment.versions if span.end > span.start}

    @property
    def oldest_version(self) -> Version | None:
        """The oldest version among its sampled tokens (None when nothing was sampled)."""
        return min(self.versions, default=None)


@dataclass(frozen=True, slots=True)
class Group:
    """The attempts at one task that are compared with each other."""

    id: int
    trajectories: tuple[Trajectory, ...]
