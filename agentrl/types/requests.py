"""Versions of the weights, requests to engines and workers, and the answers of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

TRAIN, HELD_OUT = "train", "test"
"""The splits of every environment."""


class Version(NamedTuple):
    """Version of published weights: (incarnation of the run, number of publications so far). Never reused."""

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
        """Parse what `str` wrote. Raises ValueError for any other text, including vLLM's "default"."""
        incarnation, _, n = text.partition(".")
        return cls(int(incarnation), int(n))


def age(held: Version, sampled: Version, forks: Sequence[int] = (0,)) -> int:
    """Number of updates between the weights `held` and the weights `sampled`.

    `forks[i]` is the publication count at which incarnation i of the run began. Within one lineage the age is
    `held.n - sampled.n`; across a resume it is the distance through the last common version.
    """
    if sampled.incarnation == held.incarnation:
        return held.n - sampled.n
    common = min([sampled.n, *forks[sampled.incarnation + 1 : held.incarnation + 1]])
    return (held.n - common) + (sampled.n - common)


class VersionSpan(NamedTuple):
    """The tokens from `start` (inclusive) to `end` (exclusive) were sampled by `version`."""

    version: Version
    start: int
    end: int


TokenIds = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids to continue."""

    ids: TokenIds


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters of one completion: the full distribution at `temperature` (0: greedy, never trained)."""

    max_tokens: int
    temperature: float = 1.0
    seed: int | None = None
    stop_token_ids: TokenIds = ()
    stop: tuple[str, ...] = ()


FinishReason = Literal["stop", "length", "abort"]


@dataclass(frozen=True, slots=True)
class Completion:
    """Sampled token ids, the logprob of each under the sampling distribution, and the version that sampled it.

    `ids` and `logprobs` have the same length T; `versions` covers 0..T without gaps. A sampled stop token is the last
    id.
    """

    ids: TokenIds
    logprobs: tuple[float, ...]
    versions: tuple[VersionSpan, ...]
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One published tensor, under its checkpoint name; `digest` is that of its bytes (`agentrl.weights.digest`)."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    digest: str


@dataclass(frozen=True, slots=True)
class WeightManifest:
    """Contents of a publication: every tensor with its digest."""

    version: Version
    tensors: tuple[TensorSpec, ...]


class SampleId(NamedTuple):
    """A sample: member `member` of group `group`. Every run of a sample is an attempt with a number of its own."""

    group: int
    member: int

    def __str__(self) -> str:
        return f"{self.group}-{self.member}"


AttemptId = tuple[SampleId, int]
"""One attempt at a sample."""


@dataclass(frozen=True, slots=True)
class EpisodeSettings:
    """What the episodes of a run have in common.

    `max_tokens` limits one turn, and `turn_timeout_s` its generation. `max_turns` 0 keeps the limit of the environment.
    `asks_success` asks the environment whether the episode is a success, as in an evaluation.
    """

    temperature: float
    max_tokens: int
    max_turns: int
    episode_timeout_s: float
    turn_timeout_s: float
    asks_success: bool = False


@dataclass(frozen=True, slots=True)
class GroupTask:
    """Task of a training group: the label of its environment, its index in the split, and the epoch over the tasks."""

    env: str
    epoch: int
    index: int


@dataclass(frozen=True, slots=True)
class EpisodeRequest:
    """Request to run one attempt at a sample. (seed, split, task_index, member, turn) fix all its random choices.

    `env` is the label of the environment in the run; (env, split, task_index) identify the task. `epoch` counts the
    passes over its tasks before this one.
    """

    sample: SampleId
    attempt: int
    split: str
    task_index: int
    seed: int
    settings: EpisodeSettings
    env: str = ""
    epoch: int = 0
