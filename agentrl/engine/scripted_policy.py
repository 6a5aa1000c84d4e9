"""The distribution over tokens from which the scripted engine samples, without a model."""

from __future__ import annotations

import hashlib
import math
import random
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from agentrl.types import WeightManifest


class ZipfPolicy:
    """Zipf's law over `vocab_size` tokens, in an order that depends on the weights and the context."""

    def __init__(self, vocab_size: int, weights: str) -> None:
        self.vocab_size = vocab_size
        self._weights = int.from_bytes(hashlib.blake2b(weights.encode(), digest_size=7).digest(), "big")

    @classmethod
    def of(cls, manifest: WeightManifest, vocab_size: int) -> ZipfPolicy:
        """Return the policy of these published weights: another publication or digest gives another policy.

        The incarnation does not: a resumed run samples what it would have sampled without the interruption.
        """
        return cls(vocab_size, repr((manifest.version.n, sorted((t.name, t.digest) for t in manifest.tensors))))

    def context(self, ids: Sequence[int], before: int | None = None) -> int:
        """Return the state after `ids`, starting from the state `before`."""
        state = self._weights if before is None else before
        for token in ids:
            state = hash((state, token))
        return state

    def logprob(self, state: int, token: int, temperature: float = 1.0) -> float:
        """Return the logprob of `token` in `state`. Temperature 0 samples greedily and has the logprobs of 1."""
        sharpness = 1.0 / (temperature or 1.0)
        rank = (token + state) % self.vocab_size
        return -sharpness * math.log(rank + 1) - _log_total(self.vocab_size, sharpness)

    def sample(self, state: int, temperature: float, rng: random.Random) -> int:
        """Draw one token in `state`."""
        rank = 0
        if temperature > 0:
            cumulative = _cumulative(self.vocab_size, 1.0 / temperature)
            rank = bisect_left(cumulative, rng.random() * cumulative[-1])
        return (rank - state) % self.vocab_size

    def score(self, ids: Sequence[int]) -> tuple[float, ...]:
        """Return the logprobs at temperature 1 of ids[1:], each given all ids before it."""
        state, scores = self.context(ids[:1]), []
        for token in ids[1:]:
            scores.append(self.logprob(state, token))
            state = hash((state, token))
        return tuple(scores)


@lru_cache(maxsize=16)
def _cumulative(vocab_size: int, sharpness: float) -> list[float]:
    return list(accumulate((rank + 1) ** -sharpness for rank in range(vocab_size)))


@lru_cache(maxsize=16)
def _log_total(vocab_size: int, sharpness: float) -> float:
    return math.log(_cumulative(vocab_size, sharpness)[-1])
