"""The prefix cache of an engine, simulated or recorded: how much of a context it has to read."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from agentrl.config.schema import Config
from agentrl.planning.simulation.episode import Episode

CPU_BLOCK, GPU_BLOCK = 128, 16
"""Tokens of a block of vLLM's KV cache, unless `engine.vllm` sets its `block_size`."""


def block_of(config: Config) -> int:
    """Return the tokens of a block of the engines' KV caches, which share whole blocks; 0 if they share nothing."""
    default = CPU_BLOCK if config.device == "cpu" else GPU_BLOCK
    return int(config.engine.vllm.get("block_size", default)) if config.engine.prefix_caching else 0


@dataclass(frozen=True, slots=True)
class Context:
    """What comes before a turn: so many tokens, of which the first `shared` are those of another context too.

    `sequence` names the episode's sequence that the turn continues; `source` the group or sequence that it shares with.
    """

    length: int
    sequence: Hashable
    source: Hashable = None
    shared: int = 0

    def grown(self, tokens: int) -> Context:
        """Return the context after so many more tokens."""
        return Context(self.length + tokens, self.sequence, self.source, self.shared)


def contexts(episode: Episode, name: Hashable, group: Hashable) -> Iterator[Context]:
    """Yield the context of each turn of an episode.

    The members of its group share the first one, and a later sequence the tokens that it has in common with an earlier.
    """
    lengths: dict[int, int] = {}
    for turn in episode.turns:
        length = lengths.get(turn.sequence, 0) + turn.context
        if turn.sequence == episode.turns[0].sequence:
            yield Context(length, (name, turn.sequence), group, episode.turns[0].context)
        else:
            yield Context(length, (name, turn.sequence), (name, turn.origin), turn.inherited)
        lengths[turn.sequence] = length + turn.sampled


class PrefixCache:
    """What an engine holds of sequences, and of what they share; nothing is evicted.

    `block`: tokens of a block, of which only whole ones are shared; 0: it holds nothing.
    """

    def __init__(self, block: int) -> None:
        self._block = block
        self._held: dict[Hashable, int] = {}

    def read(self, context: Context) -> int:
        """Return how many tokens of a context have to be read, the last one among them; it is held from now on."""
        held = max(self._held.get(context.sequence, 0), min(context.shared, self._held.get(context.source, 0)))
        self.keep(context)
        return context.length - max(0, min(held, context.length - 1)) // max(1, self._block) * self._block

    def keep(self, context: Context, sampled: int = 0) -> None:
        """Hold a context that was read, and what was sampled after it but for the last token, which no step reads."""
        if self._block:
            self._held[context.sequence] = context.length + max(0, sampled - 1)
            if context.shared:
                self._held[context.source] = max(context.shared, self._held.get(context.source, 0))

    def clear(self) -> None:
        """Hold nothing, as after a publication."""
        self._held.clear()
