"""The keys that every algorithm has; an algorithm's `Config` adds its own and changes defaults."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from agentrl.config.schema import Keys, Unset

Loss = Literal["ppo_clip", "dual_clip", "gspo", "cispo", "policy_gradient"]
Correction = Literal["none", "tis", "icepop", "token_mask", "sequence_mask", "geometric_mask"]
Estimator = Literal["k1", "k2", "k3"]


class AlgorithmConfig(Keys):
    """Base of every algorithm's `class Config`: rejects unknown keys and validates values and defaults."""

    model_config = ConfigDict(validate_default=True, allow_inf_nan=False)

    loss: Loss = Field("ppo_clip", description="policy loss of a token")
    clip_low: float = Field(0.2, gt=0, le=1, description="PPO clip below 1")
    clip_high: float = Field(0.28, gt=0, le=100, description="PPO clip above 1 (clip-higher)")
    normalization: Literal["token", "sequence", "constant"] = Field(
        "token", description="mean of the loss over tokens, over sequences, or the sum divided by a constant per sample"
    )
    constant: Annotated[int, Unset("rollout.max_tokens")] = Field(
        0, ge=0, description="tokens per sample by which a constant normalization divides"
    )
    old_logprobs: Literal["learner", "sampler"] = Field(
        "learner", description="old logprobs of the PPO ratio: the learner's, or the sampler's (without a correction)"
    )
    correction: Correction = Field("tis", description="correction of the mismatch between sampler and learner")
    tis_cap: float = Field(2.0, gt=0, description="greatest importance weight learner / sampler of the correction")
    tis_floor: float = Field(0.5, ge=0, le=1, description="least importance weight that a masking correction keeps")
    kl_coef: float = Field(0.0, ge=0, le=100, description="coefficient of KL(policy || reference); 0: no reference")
    kl_in: Literal["loss", "reward"] = Field(
        "loss", description="add the KL to the loss, or subtract it from the rewards"
    )
    kl_estimator: Estimator = Field("k3", description="estimator of the KL (joschu.net/blog/kl-approx.html)")
    entropy_coef: float = Field(0.0, ge=0, le=10, description="coefficient of the entropy bonus")
    filter_zero_variance: bool = Field(
        False, description="drop groups whose advantages are all zero and sample replacements (DAPO)"
    )
    max_filtered_batches: int = Field(4, ge=1, description="maximum batches of dropped groups per step")
