"""PPO: generalised advantage estimation with a critic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agentrl.algorithms.base import Algorithm, Needs
from agentrl.algorithms.config import AlgorithmConfig
from agentrl.algorithms.credit import gae, whiten
from agentrl.algorithms.sample import Array, Sample


class PPO(Algorithm):
    """Proximal Policy Optimization (Schulman et al., arXiv:1707.06347) with GAE (arXiv:1506.02438, equation 16).

    A state is a context in which the policy samples a token: the state after an action is the context before the next
    sampled token of the same agent, however many tokens of the environment or of other agents are between them. Rewards
    are on tokens as `Sample.rewards` says, a KL penalty included. The critic learns advantage + value, with the
    advantage before it is whitened over the batch.

    An episode that a limit cut off and that was scored counts as ended, as one that ended by itself: nothing follows.
    With `bootstrap_truncated` the value of each agent's last state stands for the reward of its last token, be it that
    of a turn, and for what would have followed, because V(s) = E[r + gamma V(s')] contains both; the reward itself is
    then not added. The last state is the one before the last token: the state after the environment's last answer is
    not part of a trajectory. The last token has no error of its own, and the critic learns that state from episodes
    that went on.

    With `discount_by` turn, gamma and lambda apply between turns only, so that the credit of a turn does not depend on
    its length. Assumes that the values have learned something before the policy moves: see critic.warmup_steps.
    """

    name = "ppo"
    needs = Needs(columns=frozenset({"values"}))
    is_batch_relative = True

    class Config(AlgorithmConfig):
        """Keys of PPO."""

        clip_high: float = Field(0.2, gt=0, le=100, description="clip of the ratio policy / old above 1")
        gamma: float = Field(1.0, ge=0, le=1, description="discount of later rewards")
        gae_lambda: float = Field(
            1.0, ge=0, le=1, description="GAE between the error of one step (0) and the return minus the value (1)"
        )
        discount_by: Literal["token", "turn"] = Field(
            "token", description="apply gamma and gae_lambda at each token, or from turn to turn"
        )
        bootstrap_truncated: bool = Field(
            False,
            description="let the value of the last state replace the last reward and what a limit cut off",
        )

        def idle_keys(self) -> dict[str, str]:
            """Return the keys that have no effect, each with what it needs."""
            idle = super().idle_keys()
            if self.gamma == self.gae_lambda == 1:
                idle["discount_by"] = "algorithm.gamma or algorithm.gae_lambda below 1"
            if self.truncated == "mask":
                idle["bootstrap_truncated"] = "algorithm.truncated keep"
            return idle

    config: Config

    def credit(self, groups: Sequence[Sequence[Sample]]) -> None:
        """Estimate advantages and returns of each agent, then whiten the advantages of the batch."""
        members = [sample for samples in groups for sample in samples]
        for sample in members:
            self._estimate(sample)
        whiten(members)

    def _estimate(self, sample: Sample) -> None:
        rewards, values = sample.rewards(), sample.column("values")
        for tokens in sample.streams().values():
            gammas, lambdas = self._discounts(sample.turns[tokens])
            if self.config.bootstrap_truncated and sample.is_truncated:
                rewards[tokens[-1]] = values[tokens[-1]]
            sample.advantages[tokens] = gae(rewards[tokens], np.append(values[tokens], 0.0), gammas, lambdas)
        sample.returns = sample.advantages + values

    def _discounts(self, turns: NDArray[np.int64]) -> tuple[Array, Array]:
        """Return gamma and lambda of the step from each token to the next."""
        is_step = np.ones(len(turns), dtype=bool)
        if self.config.discount_by == "turn":
            is_step[:-1] = np.diff(turns) != 0
        return np.where(is_step, self.config.gamma, 1.0), np.where(is_step, self.config.gae_lambda, 1.0)
