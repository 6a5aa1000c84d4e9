"""DAPO: GRPO with clip-higher, dynamic sampling, a mean over tokens and a penalty for overlong answers."""

from __future__ import annotations

from typing import Literal

from agentrl.algorithms.grpo import GRPO


class DAPO(GRPO):
    """Decoupled Clip and Dynamic sAmpling Policy Optimization (Yu et al., arXiv:2503.14476).

    The advantage is GRPO's. `clip_high` exceeds `clip_low` (section 3.1). Groups whose advantages are all 0 are
    replaced until the batch is full, or `max_filtered_batches` batches of them were dropped (section 3.2; the paper
    replaces those whose answers are all right or all wrong, whatever their lengths). The loss is a mean over all tokens
    of the batch (section 3.3). An answer that nears its length limit is punished (section 3.4, equation 13): see
    `agentrl.algorithms.shaping`. There is no KL term.
    """

    name = "dapo"

    class Config(GRPO.Config):
        """Keys of GRPO with the defaults of DAPO."""

        normalization: Literal["token", "sequence", "constant"] = "token"
        filter_zero_variance: bool = True
        overlong_penalty: float = 1.0

    config: Config
