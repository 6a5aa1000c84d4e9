"""Memory that a device needs in a phase of a run, and whether it fits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Phase(Enum):
    """A phase of a run; a step goes through all but the first."""

    START = "start"
    SAMPLING = "sampling"
    SCORING = "scoring"
    UPDATE = "update"
    PUBLICATION = "publication"


class Fit(Enum):
    """Whether a need is met: `TIGHT` may fit or not, because the estimate may be off."""

    FITS = "fits"
    TIGHT = "tight"
    EXCEEDS = "does not fit"


ROOM, MARGIN = 0.05, 0.15
"""The share of a device that is left free, and by how much an estimate may be off (tests/real/test_plan.py): a run is
refused only if it exceeds a device by more."""


@dataclass(frozen=True, slots=True)
class Item:
    """One use of memory."""

    name: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Need:
    """What each of `count` equal devices holds at once at the peak of a phase, and what it has."""

    device: str
    count: int
    phase: Phase
    items: tuple[Item, ...]
    capacity: int
    limit: str = "the device has"
    """What `capacity` is, for a message."""

    @property
    def nbytes(self) -> int:
        """The sum of the items."""
        return total(self.items)

    @property
    def fit(self) -> Fit:
        """Whether it fits."""
        if self.nbytes <= self.capacity * (1 - ROOM):
            return Fit.FITS
        return Fit.TIGHT if self.nbytes <= self.capacity * (1 + MARGIN) else Fit.EXCEEDS


def total(items: Iterable[Item]) -> int:
    """Return the bytes of some items together."""
    return sum(item.nbytes for item in items)


def used(*items: Item) -> tuple[Item, ...]:
    """Return the items that use memory at all."""
    return tuple(item for item in items if item.nbytes > 0)
