"""The record of an episode: tokens with their origin, rewards as signals, and one stop reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

from agentrl.types.messages import Message
from agentrl.types.requests import SampleId, TokenIds, Version, VersionSpan

Scope = Literal["turn", "episode", "group"]

TRACEBACK = "traceback"
"""The key of the traceback in the evidence of an invalid signal."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One reward. An invalid signal has no value, which is not the same as 0."""

    name: str
    value: float | None
    weight: float = 1.0
    scope: Scope = "episode"
    valid: bool = True
    reason: str = ""
    evidence: Any = None
    verifier: str = ""
    turn: int | None = None
    agent: str = ""
    """The agent whose tokens earn the reward; "" for all of them."""

    @property
    def traceback(self) -> str:
        """The traceback of the error that made the signal invalid, "" if there is none."""
        return str(self.evidence.get(TRACEBACK, "")) if isinstance(self.evidence, dict) and not self.valid else ""

    def credits(self, turn: int, agent: str) -> bool:
        """Return whether a token that `agent` samples in `turn` earns the reward."""
        is_in_time = self.scope != "turn" or self.turn is None or turn <= self.turn
        return is_in_time and self.agent in ("", agent)

    @classmethod
    def invalid(cls, name: str, reason: str, **fields: Any) -> Signal:
        """Return a signal that could not be computed, with the reason."""
        return cls(name, None, valid=False, reason=reason, **fields)


class StopReason(StrEnum):
    """Why an episode ended. `env_done` and `agent_done` terminate it; all others truncate it."""

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
        """True when the episode was terminated, False when it was truncated."""
        return self in (StopReason.ENV_DONE, StopReason.AGENT_DONE)

    @property
    def is_scored(self) -> bool:
        """True when the environment scores the episode. The rest is invalid (a deadline unless the env allows it)."""
        return self.is_terminal or self in (StopReason.MAX_TURNS, StopReason.MAX_TOKENS, StopReason.CONTEXT_OVERFLOW)


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive tokens of one origin: context (mask 0, no logprobs, no versions) or sampled (mask 1)."""

    ids: TokenIds
    is_action: bool
    logprobs: tuple[float, ...] = ()
    versions: tuple[VersionSpan, ...] = ()
    turn: int = 0
    agent: str = ""
    """The agent that speaks in this turn, where an episode has several."""


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """Segments that form one context in the engine. A rewritten history begins another sequence."""

    segments: tuple[Segment, ...]

    @property
    def ids(self) -> list[int]:
        """All token ids, length T."""
        return [token for segment in self.segments for token in segment.ids]

    @property
    def mask(self) -> list[int]:
        """1 for sampled tokens, 0 for context, length T."""
        return [int(segment.is_action) for segment in self.segments for _ in segment.ids]

    @property
    def logprobs(self) -> list[float]:
        """The sampler's logprob of each sampled token, 0.0 for context, length T."""
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
    """Seconds of an episode by activity."""

    total_s: float = 0.0
    engine_s: float = 0.0
    env_s: float = 0.0
    score_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RoleUse:
    """What an episode asked of a role: its calls, those that a cache answered, and the tokens of all others.

    `unreadable` replies were not in the form that was asked for.
    """

    calls: int = 0
    cached: int = 0
    unreadable: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def and_reply(self, prompt_tokens: int, completion_tokens: int, *, is_cached: bool) -> RoleUse:
        """Return the use with one more reply."""
        if is_cached:
            return replace(self, cached=self.cached + 1)
        tokens = self.prompt_tokens + prompt_tokens, self.completion_tokens + completion_tokens
        return replace(self, prompt_tokens=tokens[0], completion_tokens=tokens[1])

    def __add__(self, other: RoleUse) -> RoleUse:
        return RoleUse(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Exchange:
    """One turn of the policy: `Trajectory.messages[start:stop]`, the last of which is its reply.

    The conversation continues that of the turn `parent`. It is None for the first turn, and where an agent has
    rewritten its history or asks with another one: then the messages before the reply are the whole conversation.
    """

    start: int
    stop: int
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A finished attempt at a sample: all tokens, all rewards, one stop reason."""

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
    """Traceback of the exception that the environment raised, if any."""
    success: Signal | None = None
    """The environment's verdict on success, if it was asked for one and gives one."""
    env: str = ""
    """Label of the environment in the run; (env, split, task_index) identify the task."""
    roles: dict[str, RoleUse] = field(default_factory=dict)
    """What the episode asked of each role, by its name."""
    exchanges: tuple[Exchange, ...] = ()
    """Where each turn is in `messages`; without them the last `turns` replies are the turns, one after another."""

    @property
    def reward(self) -> float:
        """The weighted sum of the valid signals."""
        return sum(s.weight * s.value for s in self.signals if s.valid and s.value is not None)

    @property
    def judgements(self) -> tuple[Signal, ...]:
        """All signals, and the verdict on success if there is one."""
        return self.signals if self.success is None else (*self.signals, self.success)

    @property
    def tool_results(self) -> tuple[Message, ...]:
        """The tool messages that answer the model, without those of examples in the prompt."""
        turns = self._exchanges
        own = [message for turn in range(1, len(turns)) for message in self.observation(turn)]
        own += self.messages[turns[-1].stop :] if turns else ()
        return tuple(message for message in own if message["role"] == "tool")

    @property
    def _exchanges(self) -> tuple[Exchange, ...]:
        """Where each turn is in `messages`; none if they do not show the reply of every turn."""
        if self.exchanges:
            return self.exchanges
        replies = [index for index, message in enumerate(self.messages) if message["role"] == "assistant"]
        if len(replies) < self.turns:
            return ()
        stops = [reply + 1 for reply in replies[len(replies) - self.turns :]]
        parents = (None, *range(self.turns))
        return tuple(Exchange(*each) for each in zip([0, *stops], stops, parents, strict=False))

    @property
    def has_conversations(self) -> bool:
        """True when `messages` show the reply of every turn."""
        return len(self._exchanges) == self.turns

    def conversation(self, turn: int) -> tuple[Message, ...]:
        """Return the conversation that the policy saw in a turn, and its reply.

        Raises IndexError if `messages` do not show it.
        """
        exchange = self._exchanges[turn]
        before = () if exchange.parent is None else self.conversation(exchange.parent)
        return (*before, *self.messages[exchange.start : exchange.stop])

    @property
    def last_conversation(self) -> tuple[Message, ...]:
        """The conversation of the last turn, and what the environment said after it; `messages` without a turn."""
        turns = self._exchanges
        return (*self.conversation(-1), *self.messages[turns[-1].stop :]) if turns else self.messages

    def observation(self, turn: int) -> tuple[Message, ...]:
        """Return the messages after the previous reply in the conversation; at first, the whole prompt.

        Raises IndexError if `messages` do not show it.
        """
        exchange = self._exchanges[turn]
        new = self.messages[exchange.start : exchange.stop - 1]
        if turn == 0 or exchange.parent is not None:
            return new
        return new[1 + max((n for n, message in enumerate(new) if message["role"] == "assistant"), default=-1) :]

    @property
    def is_valid(self) -> bool:
        """True when the episode was scored and no signal with a weight is invalid or without a token to credit.

        Only then its reward counts.
        """
        return self.is_scored and all(s.valid or s.weight == 0 for s in self.signals) and self.uncredited is None

    @property
    def uncredited(self) -> Signal | None:
        """The first reward other than 0 that no sampled token earns: its agent sampled none up to its turn."""
        sampled = {(segment.turn, segment.agent) for segment in self.segments if segment.is_action and segment.ids}
        signals = (s for s in self.signals if s.valid and s.weight and s.value)
        return next((s for s in signals if sampled and not any(s.credits(*token) for token in sampled)), None)

    @property
    def is_scored(self) -> bool:
        """True when at least one signal was computed and the stop reason allows a score."""
        return bool(self.signals) and (self.stop_reason.is_scored or self.stop_reason is StopReason.DEADLINE)

    @property
    def is_unanswered(self) -> bool:
        """True when nothing failed but no token was sampled, for example because the prompt left no room.

        Such an episode cannot be trained, and no reward in it is earned by the policy.
        """
        return (self.stop_reason.is_scored or self.is_scored) and self.action_tokens == 0

    @property
    def is_trainable(self) -> bool:
        """True when the episode has a valid reward and a sampled token to credit."""
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
        """All versions that sampled a token of the episode."""
        return {span.version for segment in self.segments for span in segment.versions if span.end > span.start}

    @property
    def oldest_version(self) -> Version | None:
        """The oldest version that sampled a token, or None."""
        return min(self.versions, default=None)


@dataclass(frozen=True, slots=True)
class Group:
    """Trajectories of one task that are compared with each other."""

    id: int
    trajectories: tuple[Trajectory, ...]
    greedy: tuple[Trajectory, ...] = ()
    """Members that were decoded greedily as baselines; they are not trained."""
