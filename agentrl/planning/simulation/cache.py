"""The prefix cache of an engine, simulated or recorded: how much of a context it has to read."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from agentrl.planning.simulation.episode import Episode

BLOCK = 16
"""Tokens of a block of the KV cache: vLLM shares whole blocks."""


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
    length, first = 0, 0
    for number, turn in enumerate(episode.turns):
        length, first = (turn.context, number) if turn.is_first else (length + turn.context, first)
        yield Context(length, (name, first), group, 0 if first else episode.turns[0].context)
        length += turn.sampled


class PrefixCache:
    """What an engine holds of sequences and of the prompts that the members of a group share; nothing is evicted."""

    def __init__(self, *, is_enabled: bool = True) -> None:
        self._is_enabled = is_enabled
        self._held: dict[Hashable, int] = {}

    def read(self, context: Context) -> int:
        """Return how many tokens of a context have to be read, the last one among them; it is held from now on."""
        held = max(self._held.get(context.sequence, 0), min(context.shared, self._held.get(context.group, 0)))
        self.keep(context)
        return context.length - max(0, min(held, context.length - 1)) // BLOCK * BLOCK

    def keep(self, context: Context, sampled: int = 0) -> None:
        """Hold a context that was read, and what was sampled after it but for the last token, which no step reads."""
        if self._is_enabled:
            self._held[context.sequence] = context.length + max(0, sampled - 1)
            if context.shared:
                self._held[context.group] = context.shared

    def clear(self) -> None:
        """Hold nothing, as after a publication."""
        self._held.clear()
