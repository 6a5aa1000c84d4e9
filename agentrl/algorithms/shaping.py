"""Shaping of the rewards before credit is given: overlong turns, format, clipping, running scale, KL penalty."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import re2

from agentrl.algorithms.config import AlgorithmConfig, Estimator
from agentrl.algorithms.sample import ROUNDING, Array, Reward, Sample
from agentrl.errors import CreditError
from agentrl.types import Group, Message, Trajectory, text_of

LOGRATIO_BOUND = 10.0
"""In nats, as in `agentrl.losses.kl`."""


def shape(samples: Iterable[Sample], config: AlgorithmConfig, max_tokens: int) -> None:
    """Add the penalties for overlong turns and for format, then clip the rewards; `max_tokens` limits a turn."""
    for sample in samples:
        if config.overlong_penalty > 0:
            buffer = config.overlong_buffer or max(1, max_tokens // 5)
            sample.earned = [*sample.earned, *overlong(sample, max_tokens, buffer, config.overlong_penalty)]
        if config.format_penalty > 0:
            sample.earned = [*sample.earned, *misformatted(sample, config)]
        if config.reward_clip > 0:
            sample.earned = clipped(sample.earned, config.reward_clip)


def overlong(sample: Sample, max_tokens: int, buffer: int, penalty: float) -> list[Reward]:
    """Return the soft overlong punishment of each turn (DAPO, arXiv:2503.14476, equation 13).

    It falls linearly from 0 to -penalty over the last `buffer` tokens before the limit. The paper's limit is that of
    the answer, which is one turn. With several turns, each has the limit and its own punishment, as a reward of that
    turn: a long episode of short turns is not punished.
    """
    turns, lengths = np.unique(sample.turns, return_counts=True)
    excess = np.clip((lengths - (max_tokens - buffer)) / buffer, 0.0, 1.0)
    return [
        Reward(-penalty * share, turn, sample.agents[turn])
        for turn, share in zip(turns.tolist(), excess.tolist(), strict=True)
        if share > 0
    ]


def misformatted(sample: Sample, config: AlgorithmConfig) -> list[Reward]:
    """Return the penalty of each agent whose last reply misses the format, as a reward of that turn."""
    return [
        Reward(-config.format_penalty, turn, agent)
        for agent, turn in _last_turns(sample.agents).items()
        if not _has_format(sample.trajectory, turn, config.format_pattern)
    ]


def format_meters(groups: Iterable[Group], config: AlgorithmConfig) -> dict[str, float]:
    """Return `format_missed`, the share of last replies that miss the format; empty without a pattern."""
    if not config.format_pattern:
        return {}
    members = [trajectory for group in groups for trajectory in group.trajectories]
    last = [(each, turn) for each in members for turn in _last_turns(Sample.of(each).agents).values()]
    missed = [not _has_format(each, turn, config.format_pattern) for each, turn in last]
    return {"format_missed": sum(missed) / max(1, len(missed))}


def _last_turns(agents: Mapping[int, str]) -> dict[str, int]:
    """Return the last turn of each agent."""
    return {agent: turn for turn, agent in sorted(agents.items())}


def _has_format(trajectory: Trajectory, turn: int, pattern: str) -> bool:
    """Return whether the reply of a turn contains a match. Raises CreditError if the reply was not recorded."""
    if not trajectory.has_conversations:
        raise CreditError(
            f"algorithm.format_pattern reads replies, but the messages of sample {trajectory.sample} do not show them: "
            "leave it out"
        )
    return re2.search(pattern, reply_text(trajectory.conversation(turn)[-1])) is not None


def reply_text(reply: Message) -> str:
    """Return the text of a reply; thinking that the template separates is before it, in <think> and </think>.

    Thinking without a text or a call after it is not closed.
    """
    text, thinking = text_of(reply), reply.get("reasoning_content")
    if thinking is None:
        return text
    return f"<think>{thinking}</think>{text}" if text or reply.get("tool_calls") else f"<think>{thinking}"


def clipped(earned: Sequence[Reward], bound: float) -> list[Reward]:
    """Clip the sum of what an agent earns in a turn, and of what the episode earns, to [-bound, bound]."""
    sums: dict[tuple[int | None, str], float] = defaultdict(float)
    for reward in earned:
        sums[reward.turn, reward.agent] += reward.value
    return [Reward(min(bound, max(-bound, value)), turn, agent) for (turn, agent), value in sums.items()]


def observe(samples: Sequence[Sample], state: dict[str, float]) -> None:
    """Update count, mean and squared deviations of all episode rewards of the run (Chan et al. 1979).

    Each agent of an episode has its own: what the agents of a game earn may add up to 0. `reward_size` is the largest
    sum of absolute rewards, in which rounding is measured.
    """
    earned = [_earned_by(sample, agent) for sample in samples for agent in sample.streams()]
    totals = np.array([math.fsum(values) for values in earned])
    state["reward_size"] = max(state.get("reward_size", 0.0), *(math.fsum(map(abs, values)) for values in earned))
    count, mean = state.get("reward_count", 0.0), state.get("reward_mean", 0.0)
    size, shift = len(totals), float(totals.mean()) - mean
    state["reward_count"] = count + size
    state["reward_mean"] = mean + shift * size / (count + size)
    state["reward_squares"] = (
        state.get("reward_squares", 0.0)
        + float(np.sum((totals - totals.mean()) ** 2))
        + shift**2 * count * size / (count + size)
    )


def _earned_by(sample: Sample, agent: str) -> list[float]:
    return [reward.value for reward in sample.earned if reward.agent in ("", agent)]


def scale(samples: Iterable[Sample], state: dict[str, float]) -> None:
    """Divide the rewards by the standard deviation of all episode rewards so far, unless these are equal.

    The mean stays: to shift every reward would change what it is worth to end an episode early.
    """
    deviation = math.sqrt(state["reward_squares"] / state["reward_count"])
    if deviation > ROUNDING * state["reward_size"]:
        for sample in samples:
            sample.earned = [Reward(r.value / deviation, r.turn, r.agent) for r in sample.earned]


def kl_values(old: Array, reference: Array, estimator: Estimator) -> Array:
    """Return Schulman's estimate of KL(old || reference) at each token (joschu.net/blog/kl-approx.html).

    With d = old - reference: k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d. d is clamped to LOGRATIO_BOUND.
    """
    d = np.clip(old - reference, -LOGRATIO_BOUND, LOGRATIO_BOUND)
    return {"k1": d, "k2": d**2 / 2, "k3": np.expm1(-d) + d}[estimator]
