"""What is asked for: episodes of the workers, completions of the engines, weights under a version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

TRAIN, HELD_OUT = "train", "test"
"""The splits of every environment."""


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


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a publication, in checkpoint names; `digest` is `agentrl.weights.digest` of its bytes."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    digest: str


@dataclass(frozen=True, slots=True)
class WeightManifest:
    """What a publication must contain: every tensor with its digest."""

    version: Version
    tensors: tuple[TensorSpec, ...]
    kind: Literal["full", "adapter"] = "full"


class SampleId(NamedTuple):
    """Which sample: member `member` of group `group`. An attempt at it adds a number; a rerun is a new attempt."""

    group: int
    member: int

    def __str__(self) -> str:
        return f"{self.group}-{self.member}"


@dataclass(frozen=True, slots=True)
class EpisodeRequest:
    """Run one attempt at one sample. Every random choice in it follows from (seed, split, task_index, member, turn)."""

    sample: SampleId
    attempt: int
    split: str
    task_index: int
    seed: int
    temperature: float
    max_tokens: int
    max_turns: int
    episode_timeout_s: float
    turn_timeout_s: float
    asks_success: bool = False
    """Whether the env is asked if the episode is a success: in an evaluation."""
