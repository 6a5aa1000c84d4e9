"""Which task each group has, and the seeds of all random choices: the same for the same seed of the run."""

from __future__ import annotations

import functools
import hashlib
import random


def task_of(seed: int, group: int, tasks: int | None) -> tuple[int, int]:
    """(epoch, task index) of a group; `tasks` is the length of the split, None if it is endless."""
    if not tasks:
        return 0, group
    epoch, index = divmod(group, tasks)
    return epoch, shuffled(seed, epoch, tasks)[index]


@functools.lru_cache(maxsize=2)
def shuffled(seed: int, epoch: int, tasks: int) -> tuple[int, ...]:
    """Return the order in which an epoch visits the tasks: a permutation of range(tasks)."""
    order = list(range(tasks))
    random.Random(stable_hash(seed, "shuffle", epoch)).shuffle(order)
    return tuple(order)


def stable_hash(*parts: object) -> int:
    """Return a 63-bit hash of the parts, the same in every process."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
