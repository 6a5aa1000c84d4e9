"""Policy losses, corrections and KL terms: pure functions on tensors."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from agentrl.losses.policy_loss import ppo_clip
from agentrl.losses.terms import Meter, Terms

LOSSES: dict[str, Callable[[Terms, Any], Tensor]] = {"ppo_clip": ppo_clip}
"""Policy losses by name: functions of `Terms` and the algorithm's configuration, which return a loss per token [A]."""

__all__ = ["LOSSES", "Meter", "Terms"]
