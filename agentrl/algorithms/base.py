"""The Algorithm contract: trajectories become per-token advantages, and name their loss."""

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
    reference: bool = False
    critic: bool = False


# advantages[g][m][s][t]: group, member, sequence, token; 0.0 on context tokens.
Advantages = list[list[list[list[float]]]]


class Algorithm(ABC):
    """One class, one file. Sees all groups of an optimizer step; every trajectory in them is valid."""

    name: ClassVar[str]
    needs: ClassVar[Needs] = Needs()
    compares: ClassVar[Literal["group", "batch"]] = "group"
    """What a trajectory is compared with: the members of its group, or the whole batch."""
    loss: ClassVar[str] = "ppo_clip"

    @abstractmethod
    def advantages(self, groups: Sequence[Group]) -> Advantages:
        """Per-token advantages of every sequence, aligned with `TokenSequence.ids`."""

    def has_signal(self, group: Group) -> bool:
        """Whether any advantage of the group is not 0; one that is compared with the batch may always have some."""
        if self.compares == "batch":
            return True
        return any(a for members in self.advantages([group]) for member in members for row in member for a in row)
