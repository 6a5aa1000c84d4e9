"""The Algorithm contract: compute an advantage for every token, and name the loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from agentrl.types import Group


@dataclass(frozen=True)
class Needs:
    """What the run must provide for an algorithm."""

    min_group_size: int = 1


# advantages[g][m][s][t]: group, member, sequence, token; 0.0 on context tokens.
Advantages = list[list[list[list[float]]]]


class Algorithm(ABC):
    """Base class of the algorithms. It sees all groups of an optimizer batch; every trajectory in them is valid."""

    name: ClassVar[str]
    needs: ClassVar[Needs] = Needs()
    compares: ClassVar[Literal["group", "batch"]] = "group"
    """The baseline of a trajectory: the members of its group, or the whole batch."""
    loss: ClassVar[str] = "ppo_clip"
    """A name in `agentrl.losses.LOSSES`."""

    @abstractmethod
    def advantages(self, groups: Sequence[Group]) -> Advantages:
        """Return the advantage of every token of every sequence, aligned with `TokenSequence.ids`."""

    def has_signal(self, group: Group) -> bool:
        """True when any advantage of the group is not 0. Always True for an algorithm that compares the whole batch."""
        if self.compares == "batch":
            return True
        return any(a for members in self.advantages([group]) for member in members for row in member for a in row)
