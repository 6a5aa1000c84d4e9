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
    """What comes before a turn: so many tokens, of which the first `shared` are those of every member of a group.

    `sequence` names the episode's sequence that the turn continues.
    """

    length: int
    sequence: Hashable
    group: Hashable = None
    shared: int = 0

    def grown(self, tokens: int) -> Context:
        """Return the context after so many more tokens."""
        return Context(self.length + tokens, self.sequence, self.group, self.shared)


def contexts(episode: Episode, name: Hashable, group: Hashable) -> Iterator[Context]:
    """Yield the context of each turn of an episode; the members of its group share the first one."""
    lengths: dict[int, int] = {}
    for turn in episode.turns:
        length = lengths.get(turn.sequence, 0) + turn.context
        is_prompt = turn.sequence == episode.turns[0].sequence
        yield Context(length, (name, turn.sequence), group, episode.turns[0].context if is_prompt else 0)
        lengths[turn.sequence] = length + turn.sampled


class PrefixCache:
    """What an engine holds of sequences and of the prompts that the members of a group share; nothing is evicted.

    `block`: tokens of a block, of which only whole ones are shared; 0: it holds nothing.
    """

    def __init__(self, block: int) -> None:
        self._block = block
        self._held: dict[Hashable, int] = {}

    def read(self, context: Context) -> int:
        """Return how many tokens of a context have to be read, the last one among them; it is held from now on."""
        held = max(self._held.get(context.sequence, 0), min(context.shared, self._held.get(context.group, 0)))
        self.keep(context)
        return context.length - max(0, min(held, context.length - 1)) // max(1, self._block) * self._block

    def keep(self, context: Context, sampled: int = 0) -> None:
        """Hold a context that was read, and what was sampled after it but for the last token, which no step reads."""
        if self._block:
            self._held[context.sequence] = context.length + max(0, sampled - 1)
            if context.shared:
                self._held[context.group] = context.shared

    def clear(self) -> None:
        """Hold nothing, as after a publication."""
        self._held.clear()
