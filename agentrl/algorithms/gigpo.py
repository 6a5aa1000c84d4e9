"""GiGPO: groups of episodes, and inside them groups of turns that start from the same state."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from agentrl.algorithms.base import Algorithm, Needs
from agentrl.algorithms.config import AlgorithmConfig
from agentrl.algorithms.credit import centred, remaining
from agentrl.algorithms.sample import Sample
from agentrl.types import Trajectory, text_of

EPSILON = 1e-6

Anchor = tuple[tuple[str, str], ...]
"""An anchor state: the role and the text of each message."""


class GiGPO(Algorithm):
    """Group-in-Group Policy Optimization (Feng et al., arXiv:2505.10978).

    A token of turn t gets A_E + step_weight * A_S (equation 8). A_E = (R - mean) / F over the episode rewards R of the
    group (equation 3). A_S is the same over the discounted returns of all turns, of any member, that start from the
    same anchor state (equations 5 to 7); a state that occurs once gives 0. F is the sample standard deviation + 1e-6,
    or 1 if `scale_rewards` is false. The reward of the episode is earned in its last turn.

    The anchor state of a turn is what the environment said since the previous reply (before the first: the prompt), as
    in the authors' code. The whole history would almost never occur twice. Assumes that such an observation determines
    what can still be earned; turns whose messages were not recorded are compared with nothing.
    """

    name = "gigpo"
    needs = Needs(group_size=2)

    class Config(AlgorithmConfig):
        """Keys of GiGPO."""

        scale_rewards: bool = Field(True, description="divide advantages by the standard deviation of their group")
        step_weight: float = Field(1.0, ge=0, le=100, description="weight of the step-level advantage (omega)")
        gamma: float = Field(0.95, gt=0, le=1, description="discount per turn of the step-level return")

        def idle_keys(self) -> dict[str, str]:
            """Return the keys that have no effect, each with what it needs."""
            idle = super().idle_keys()
            return idle if self.step_weight else idle | {"gamma": "algorithm.step_weight above 0"}

    config: Config

    def credit(self, groups: Sequence[Sequence[Sample]]) -> None:
        """Advantage of the episode in its group plus that of each turn among those of its anchor state."""
        for samples in groups:
            episodes = self._episodes(samples)
            steps = self._steps(samples)
            for member, sample in enumerate(samples):
                of_turn = {
                    turn: episodes[agent][member] + self.config.step_weight * steps.get((member, turn), 0.0)
                    for turn, agent in sample.agents.items()
                }
                sample.advantages = sample.by_token(of_turn)

    def _episodes(self, samples: Sequence[Sample]) -> dict[str, list[float]]:
        """A_E of each member by agent."""
        agents = {agent for sample in samples for agent in sample.agents.values()}
        return {agent: self._normalised([_earned(sample, agent) for sample in samples]) for agent in agents}

    def _steps(self, samples: Sequence[Sample]) -> dict[tuple[int, int], float]:
        """A_S by member and turn."""
        places: dict[tuple[str, Anchor], list[tuple[int, int]]] = defaultdict(list)
        for member, sample in enumerate(samples):
            for turn, anchor in enumerate(anchors(sample.trajectory)):
                if turn in sample.agents:
                    places[sample.agents[turn], anchor].append((member, turn))
        steps: dict[tuple[int, int], float] = {}
        for (agent, _), same in places.items():
            returns = [remaining(samples[member], agent, turn, self.config.gamma) for member, turn in same]
            steps |= zip(same, self._normalised(returns), strict=True)
        return steps

    def _normalised(self, returns: list[float]) -> list[float]:
        values: list[float] = centred(np.array(returns)).tolist()
        if not self.config.scale_rewards:
            return values
        variance = math.fsum(value**2 for value in values) / max(1, len(values) - 1)
        return [value / (math.sqrt(variance) + EPSILON) for value in values]


def _earned(sample: Sample, agent: str) -> float:
    """Return the episode reward of an agent: what it earns from its first turn on."""
    first = min((turn for turn, speaker in sample.agents.items() if speaker == agent), default=0)
    return remaining(sample, agent, first)


def anchors(trajectory: Trajectory) -> list[Anchor]:
    """Return what the environment said before each turn; empty if the messages do not show every turn's reply."""
    if not trajectory.has_conversations:
        return []
    observations = map(trajectory.observation, range(trajectory.turns))
    return [tuple((message["role"], text_of(message)) for message in each) for each in observations]
