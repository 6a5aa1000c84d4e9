"""The schedule of a run: which task a group has, how many groups may be outstanding, and the randomness of each."""

from __future__ import annotations

import functools
import hashlib
import random
from dataclasses import dataclass
from typing import Literal

from agentrl.types import TRAIN, EpisodeRequest, EpisodeSettings, SampleId


@dataclass(frozen=True, slots=True)
class Schedule:
    """The rules of one run. `tasks` is the length of the split, None if it is endless.

    For each batch, at most `max_filtered_batches` times its number of groups are replaced for having no signal.
    """

    seed: int
    prompts: int
    group_size: int
    episode: EpisodeSettings
    max_staleness: int
    on_stale: Literal["drop", "wait"]
    max_invalid: float
    min_valid: int = 2
    max_filtered_batches: int = 0
    steps: int = 1 << 30
    tasks: int | None = None
    split: str = TRAIN
    max_attempts: int = 3

    @property
    def samples(self) -> int:
        """The number of samples in a batch."""
        return self.prompts * self.group_size

    def capacity(self, trained: int) -> int:
        """Groups that may be outstanding after `trained` steps: in flight, buffered, or in the batch in training."""
        return min(self.max_staleness + 1, self.steps - trained) * self.prompts

    def request(self, sample: SampleId, attempt: int) -> EpisodeRequest:
        """Return the request for an attempt. Later epochs over the same tasks draw fresh randomness."""
        epoch, task_index = self._task_of(sample.group)
        seed = self.seed if epoch == 0 else stable_hash(self.seed, "epoch", epoch)
        return EpisodeRequest(sample, attempt, self.split, task_index, seed, self.episode)

    def _task_of(self, group: int) -> tuple[int, int]:
        """(epoch, task index) of a group."""
        if not self.tasks:
            return 0, group
        epoch, index = divmod(group, self.tasks)
        return epoch, shuffled(self.seed, epoch, self.tasks)[index]


def stable_hash(*parts: object) -> int:
    """Return a 63-bit hash of the parts, the same in every process."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


@functools.lru_cache(maxsize=2)
def shuffled(seed: int, epoch: int, tasks: int) -> tuple[int, ...]:
    """Return the order in which an epoch visits the tasks: a permutation of range(tasks)."""
    order = list(range(tasks))
    random.Random(stable_hash(seed, "shuffle", epoch)).shuffle(order)
    return tuple(order)
