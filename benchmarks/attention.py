"""Seconds and peak memory of attention over packs, against a dense bias and against transformers' sdpa, interleaved.

python -m benchmarks.attention [--tokens 1024 4096 16384 32768] [--rounds 2] [--heads 9x3x64] [--tiles 128 256 512]; the
last line is the figures as JSON. One layer, forward and backward, in bfloat16, with the heads of SmolLM2-135M: over one
sequence, and over a tree of 16 branches whose prefix has half of the tokens. The sides:

- tiles: agentrl's `Tiles` over the pack;
- dense: PyTorch's SDPA over the pack, with one bias [tokens, tokens];
- padded: transformers' `sdpa_attention_forward` over the whole sequences as a padded batch, where each branch repeats
  the prefix.

Each side of each case has a process of its own, and they take turns. Before, outputs and gradients are compared. Memory
is the peak of the process beyond what it held without inputs, biases included. A side that would take more than the
free memory is not run. With `--tiles` the sides are tiles of these sizes instead.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # as in a run's learner

import torch
from torch import Tensor

from agentrl.config.machine import detect
from agentrl.learner.attention import tiles
from agentrl.learner.memory import keep_freed_memory
from benchmarks.arms import Arm, threads
from benchmarks.attention_forms import FORMS
from benchmarks.memory import forget_peak, peak_bytes, resident_bytes
from benchmarks.packs import Heads, Pack, Trees, states, tree
from benchmarks.timing import alternated, column, last_line, median

MIB, GIB = 1 << 20, 1 << 30
KINDS, BRANCHES, TOKENS = ("sequence", "tree"), 16, [1024, 4096, 16_384, 32_768]
SAMPLED = 64
"""Tokens whose outputs and gradients are compared, evenly over the pack."""
TOLERANCE = 2e-2
"""Of the norm of the difference between two sides, by the norm of one."""
SPARE = 0.8
"""Share of the free memory that the sides of a case may take together."""


@dataclass(frozen=True)
class Case:
    """A pack of `tokens`, as one sequence or as a tree."""

    kind: str
    tokens: int
    heads: Heads

    @property
    def name(self) -> str:
        return f"{self.kind} {self.tokens}"

    @property
    def trees(self) -> Trees:
        return [(0, [self.tokens])] if self.kind == "sequence" else tree(self.tokens, BRANCHES)

    def needed_bytes(self, side: str) -> int:
        """Estimate the memory of a side: its states with their gradients and copies, and its bias."""
        kind, _, size = side.partition(" ")
        longest = max(prefix + max(branches) for prefix, branches in self.trees)
        rows = sum(len(branches) for _, branches in self.trees)
        tokens = rows * longest if kind == "padded" else self.tokens
        bias = {
            "tiles": 4 * int(size or tiles.TILE) * self.tokens,
            "dense": 2 * self.tokens**2,
            "padded": 3 * rows * longest**2 if rows > 1 else 0,  # as booleans, and as numbers inside SDPA
        }
        return bias[kind] + 2 * tokens * self.heads.size * 8 * (self.heads.queries + self.heads.keys)


class Layer:
    """One side of a case, over the same states as the other sides."""

    def __init__(self, side: str, case: Case) -> None:
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        keep_freed_memory()
        kind, _, size = side.partition(" ")
        if size:
            tiles.TILE = int(size)
        self._before, self._places = resident_bytes(), torch.linspace(0, case.tokens - 1, SAMPLED).long()
        *given, grad = states(case.tokens, case.heads)
        started = time.perf_counter()
        self._form = FORMS[kind](Pack.of(case.trees))
        self._plan_s = time.perf_counter() - started
        self._given, self._grad = [self._form.spread(one).requires_grad_() for one in given], self._form.placed(grad)

    def step(self) -> dict[str, float]:
        """Attend and compute the gradients once; `plan_s` are the seconds of what all layers of a model share."""
        forget_peak()
        started = time.perf_counter()
        self._outcome()
        seconds = time.perf_counter() - started
        return {"seconds": seconds, "peak_mib": (peak_bytes() - self._before) / MIB, "plan_s": self._plan_s}

    def sample(self) -> list[float]:
        """Return output and gradients of some tokens of the pack."""
        out, *grads = self._outcome()
        parts = [self._form.gathered(out), *map(self._form.summed, grads)]
        values: list[float] = torch.cat([part[self._places].float().flatten() for part in parts]).tolist()
        return values

    def _outcome(self) -> list[Tensor]:
        out = self._form(*self._given)
        return [out.detach(), *torch.autograd.grad(out, self._given, self._grad)]


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All sides of every case."""
    sides = [f"tiles {size}" for size in args.tiles] or list(FORMS)
    cases = [Case(kind, tokens, args.heads) for tokens in args.tokens for kind in KINDS]
    return {
        "heads": str(args.heads),
        "rounds": args.rounds,
        "cases": {case.name: await _measured(case, sides, args.rounds) for case in cases},
    }


async def _measured(case: Case, sides: Sequence[str], rounds: int) -> dict[str, Any]:
    """The figures of one case; the first side is what the others are divided by."""
    fitting, too_large = _fitting(case, sides)
    print(f"\n{case.name} tokens" + "".join(f"; {side} would take {gib:.1f} GiB" for side, gib in too_large.items()))
    arms = {side: Arm(Layer, side, case, env=threads()) for side in fitting}
    difference = _compared({side: arm.call("sample") for side, arm in arms.items()})
    steps = {side: (lambda arm=arm: arm.acall("step")) for side, arm in arms.items()}
    taken = await alternated(rounds, steps)
    for arm in arms.values():
        arm.close()
    first, *others = taken
    keys = ("seconds", "peak_mib", "plan_s")
    return {
        "difference": difference,
        "too_large_gib": too_large,
        **{key: {side: column(rows, key) for side, rows in taken.items()} for key in keys},
        "seconds_to_first": {side: _ratio(taken[side], taken[first], "seconds") for side in others},
        "peak_to_first": {side: _ratio(taken[side], taken[first], "peak_mib") for side in others},
    }


def _fitting(case: Case, sides: Sequence[str]) -> tuple[list[str], dict[str, float]]:
    """The sides whose memory is free at the same time, in their order, and the GiB that the others would take."""
    left, fitting, too_large = detect().free_memory_gib * GIB * SPARE, list[str](), dict[str, float]()
    for side in sides:
        needed = case.needed_bytes(side)
        if needed > left:
            too_large[side] = needed / GIB
        else:
            left -= needed
            fitting.append(side)
    return fitting, too_large


def _compared(samples: dict[str, list[float]]) -> float:
    """The largest relative difference between the first side and another; ends the program if it is no rounding."""
    first, *others = (torch.tensor(values) for values in samples.values())
    worst = max((float((other - first).norm() / first.norm()) for other in others), default=0.0)
    if not worst <= TOLERANCE:
        raise SystemExit(f"{', '.join(samples)} differ by {worst:.2g} of their size: they do not compute the same")
    return worst


def _ratio(rows: list[dict[str, float]], others: list[dict[str, float]], key: str) -> float:
    return median([row[key] / other[key] for row, other in zip(rows, others, strict=True)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS, help="tokens of the packs")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--heads", type=Heads.of, default=Heads(), metavar="QUERIESxKEYSxSIZE", help="of the layer")
    parser.add_argument("--tiles", type=int, nargs="+", default=[], metavar="SIZE", help="compare tiles of these sizes")
    print(last_line("attention", asyncio.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()
