"""What the scheduler asks of a rollout worker."""

from __future__ import annotations

from dataclasses import dataclass

from agentrl.types import SampleId


@dataclass(frozen=True, slots=True)
class EpisodeOrder:
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
