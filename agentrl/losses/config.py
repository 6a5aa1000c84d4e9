"""The keys that losses read; `agentrl.algorithms.AlgorithmConfig` has them."""

from __future__ import annotations

from typing import Protocol


class LossConfig(Protocol):
    """Settings of the policy loss, the correction, the KL term and the entropy bonus."""

    @property
    def clip_low(self) -> float:
        """Clip of the ratio below 1."""

    @property
    def clip_high(self) -> float:
        """Clip of the ratio above 1."""

    @property
    def dual_clip(self) -> float:
        """Greatest ratio of a token with a negative advantage."""

    @property
    def old_logprobs(self) -> str:
        """ "learner" or "sampler"."""

    @property
    def correction(self) -> str:
        """Name of the correction."""

    @property
    def tis_cap(self) -> float:
        """Greatest importance weight."""

    @property
    def tis_floor(self) -> float:
        """Least ratio that a mask keeps."""

    @property
    def geometric_low(self) -> float:
        """Least geometric mean of a sequence's ratios that is kept."""

    @property
    def geometric_high(self) -> float:
        """Greatest geometric mean of a sequence's ratios that is kept."""

    @property
    def kl_coef(self) -> float:
        """Coefficient of the KL, at the start if it adapts."""

    @property
    def kl_in(self) -> str:
        """ "loss" or "reward"."""

    @property
    def kl_estimator(self) -> str:
        """Estimator of the reported KL: k1, k2 or k3."""

    @property
    def entropy_coef(self) -> float:
        """Coefficient of the entropy bonus, at the start if it adapts."""

    @property
    def has_entropy_bonus(self) -> bool:
        """Whether there is an entropy bonus, if only later in the run."""

    @property
    def entropy_clip(self) -> float:
        """Entropy above which a token gets no bonus; 0: no bound."""
