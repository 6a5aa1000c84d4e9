"""Policy losses, corrections and KL terms: pure functions on tensors.

`correction`, `kl`, `objective` and `value_loss` are in the modules of their names.
"""

from collections.abc import Callable

from torch import Tensor

from agentrl.losses.config import LossConfig
from agentrl.losses.policy_loss import cispo, dual_clip, gspo, policy_gradient, ppo_clip
from agentrl.losses.terms import Meter, Terms

LOSSES: dict[str, Callable[[Terms, LossConfig], Tensor]] = {
    loss.__name__: loss for loss in (ppo_clip, dual_clip, gspo, cispo, policy_gradient)
}
"""Policy losses by name: functions of `Terms` and the algorithm's configuration, which return a loss per token [A]."""

__all__ = [
    "LOSSES",
    "LossConfig",
    "Meter",
    "Terms",
    "cispo",
    "dual_clip",
    "gspo",
    "policy_gradient",
    "ppo_clip",
]
