"""What flows between the parts: messages, tokens, signals, trajectories, versions. Plain Python, no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple, NotRequired, Required, TypedDict

# --------------------------------------------------------------------------------------------------------------
# Messages: the space an environment author lives in (the OpenAI chat form, content as text or typed parts).


class TextPart(TypedDict):
    """A piece of text inside a message."""

    type: Literal["text"]
    text: str


class ThinkingPart(TypedDict):
    """The model's own reasoning, kept apart from what it says."""

    type: Literal["thinking"]
    thinking: str


class ImagePart(TypedDict):
    """An image by path or URL."""

    type: Literal["image"]
    image: str


Part = TextPart | ThinkingPart | ImagePart


class FunctionCall(TypedDict):
    """The function a model asks for; `arguments` is an object, or the raw text when it is not valid JSON."""

    name: str
    arguments: dict[str, Any] | str


class ToolCall(TypedDict, total=False):
    """One tool call of an assistant message."""

    id: str
    type: str
    function: Required[FunctionCall]


class Message(TypedDict, total=False):
    """One message of a conversation."""

    role: Required[Literal["system", "user", "assistant", "tool"]]
    content: Required[str | list[Part]]
    tool_calls: NotRequired[list[ToolCall]]
    tool_call_id: NotRequired[str]
    name: NotRequired[str]
    reasoning_content: NotRequired[str]


class ToolSpec(TypedDict):
    """A tool as the model is told of it: `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: dict[str, Any]


TOOL_ERROR = "error: "
"""How a tool message begins whose call failed."""


def text_of(message: Message) -> str:
    """The plain text of a message: its string content, or its text parts joined."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


# --------------------------------------------------------------------------------------------------------------
# Versions: which weights sampled a token.


class Version(NamedTuple):
    """The name of published weights: (incarnation of the run, publications so far). Never reused."""

    incarnation: int
    n: int

    def __str__(self) -> str:
        return f"{self.incarnation}.{self.n}"

    @property
    def next(self) -> Version:
        """The version of the next publication."""
        return Version(self.incarnation, self.n + 1)

    @classmethod
    def parse(cls, text: str) -> Version:
        """The inverse of `str`; raises ValueError for anything else (vLLM's "default" included)."""
        incarnation, _, n = text.partition(".")
        return cls(int(incarnation), int(n))


def age(held: Version, sampled: Version, forks: Sequence[int] = (0,)) -> int:
    """Updates that lie between the weights `held` and the weights that `sampled`.

    `forks[i]` is the publication count at which incarnation i of the run began. Within one lineage this is
    `held.n - sampled.n`; across a resume it is the distance through the last common version.
    """
    if sampled.incarnation == held.incarnation:
        return held.n - sampled.n
    common = min([sampled.n, *forks[sampled.incarnation + 1 : held.incarnation + 1]])
    return (held.n - common) + (sampled.n - common)


class VersionSpan(NamedTuple):
    """`version` sampled the tokens `start` (inclusive) to `end` (exclusive)."""

    version: Version
    start: int
    end: int


# --------------------------------------------------------------------------------------------------------------
# The engine's currency.


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids to continue; `media` is reserved for images and stays empty for text models."""

    ids: tuple[int, ...]
    media: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample one completion: the full distribution at `temperature` (0 = greedy, evaluation only)."""

    max_tokens: int
    temperature: float = 1.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()


FinishReason = Literal["stop", "length", "abort"]


@dataclass(frozen=True, slots=True)
class Completion:
    """Sampled ids with the logprob of each under the distribution sampled from, and who sampled it.

    `ids` and `logprobs` have one length T; `versions` covers 0..T without gaps. The stop token, when one was sampled,
    is the last id.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[VersionSpan, ...]
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do; callers ask here before they call."""

    sleep: bool = False
    score: bool = True
    weight_transfer: tuple[str, ...] = ()
    max_model_len: int = 0


# --------------------------------------------------------------------------------------------------------------
# Weights on their way to the engines.


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a publication, in checkpoint names; `digest` is `agentrl.weights.digest` of its bytes."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    digest: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a publication must contain: every tensor with its digest."""

    version: Version
    tensors: tuple[TensorSpec, ...]
    kind: Literal["full", "adapter"] = "full"


# --------------------------------------------------------------------------------------------------------------
# Rewards and endings.

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


# --------------------------------------------------------------------------------------------------------------
# Trajectories.


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


class SampleId(NamedTuple):
    """Which sample: member `member` of group `group`. An attempt at it adds a number; a rerun is a new attempt."""

    group: int
    member: int

    def __str__(self) -> str:
        return f"{self.group}-{self.member}"


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
