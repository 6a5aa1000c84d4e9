"""Trajectories and groups to credit, and the advantages they get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentrl.algorithms import Algorithm, RunShape, resolve
from agentrl.algorithms.driver import assign
from agentrl.algorithms.sample import Sample, samples_of
from agentrl.types import (
    Group,
    Message,
    SampleId,
    Segment,
    Signal,
    StopReason,
    TokenSequence,
    Trajectory,
)


def algorithm(name: str, run: RunShape | None = None, **keys: Any) -> Algorithm:
    """The algorithm called `name` with its default keys but for `keys`."""
    cls = resolve(name)
    return cls(cls.Config(**keys), run)


def trajectory(
    member: int,
    reward: float,
    turns: Mapping[int, float] | None = None,
    lengths: Sequence[int] = (2,),
    agents: Sequence[str] = (),
    stop_reason: StopReason = StopReason.ENV_DONE,
    states: Sequence[str] = (),
) -> Trajectory:
    """One sequence: for each turn one context token, then as many sampled ones as `lengths` says.

    `turns` holds the rewards of turns. Turn t begins with the observation `states[t]`, by default "state t".
    """
    segments: list[Segment] = []
    messages: list[Message] = []
    for turn, length in enumerate(lengths):
        segments += [Segment((7,), is_action=False, turn=turn)]
        agent = agents[turn] if agents else ""
        segments += [Segment((5,) * length, True, logprobs=(-1.0,) * length, turn=turn, agent=agent)]
        state = states[turn] if states else f"state {turn}"
        messages += [{"role": "user", "content": state}, {"role": "assistant", "content": "reply"}]
    signals = [Signal("r", reward), *(Signal("t", v, scope="turn", turn=k) for k, v in (turns or {}).items())]
    sequences = (TokenSequence(tuple(segments)),)
    return Trajectory(
        SampleId(0, member), 0, "train", 0, "0", sequences, tuple(messages), tuple(signals), stop_reason,
        turns=len(lengths),
    )  # fmt: skip


def group(*members: Trajectory, greedy: Trajectory | None = None) -> Group:
    """A group with a greedy member, by default one like the last."""
    baseline = replace(greedy or members[-1], sample=SampleId(0, len(members)), temperature=0.0)
    return Group(0, members, (baseline,))


def assigned(rule: Algorithm, *groups: Group) -> list[Sample]:
    """All samples of a batch with their credit."""
    samples = samples_of(groups)
    assign(rule, samples)
    return [sample for members in samples for sample in members]


def advantages(rule: Algorithm, *groups: Group) -> list[list[float]]:
    """The advantages of each sample's sampled tokens, over all groups."""
    return [sample.advantages.tolist() for sample in assigned(rule, *groups)]


def by_turn(rule: Algorithm, *groups: Group) -> list[list[float]]:
    """The advantage of each turn's first token, for each sample."""
    return [
        [float(sample.advantages[sample.turns == turn][0]) for turn in sorted(sample.agents)]
        for sample in assigned(rule, *groups)
    ]
